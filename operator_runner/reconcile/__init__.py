"""Reconcile one resource: read, decide, run, report. Only `reconciler` and `report` do I/O."""
