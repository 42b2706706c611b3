"""Fakes of the ports of a reconcile, for unit tests."""
