"""Isolate runs: no run can read files, memory or environment of another run.

`isolation` applies the restrictions; `isolation_probe` finds which of them the host supports.
"""
