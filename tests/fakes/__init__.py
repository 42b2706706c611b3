"""Stand-ins for the ports of a reconcile, for unit tests."""
