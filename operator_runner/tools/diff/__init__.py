"""Command `operator-runner diff`: what the roles of a project would change."""
