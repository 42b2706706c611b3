"""Runs as Kubernetes Jobs; see docs/jobs.md."""
