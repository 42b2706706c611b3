"""Command `operator-runner runs`: the runs of operators, from their API."""
