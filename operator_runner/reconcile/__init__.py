"""Reconcile one resource: read, decide, run, report. The decisions are pure."""
