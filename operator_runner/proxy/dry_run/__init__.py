"""Dry runs: requests of a run that must write nothing. See docs/adr/0040-diff-and-drift.md."""
