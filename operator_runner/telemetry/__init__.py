"""Metrics, probes and logs of the operator; imports `core` and `net` only."""
