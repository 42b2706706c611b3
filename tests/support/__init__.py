"""Helpers of tests with real parts: kubectl, an operator process, waiting."""
