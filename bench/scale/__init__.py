"""Replicas that share resources: random faults, and the number of runs in the same time."""
