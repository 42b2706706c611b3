"""Runs are kept apart: none reads files, memory or environment of another one.

`isolation.py` is what a run is told and does; `finding.py` is what the operator finds possible.
"""
