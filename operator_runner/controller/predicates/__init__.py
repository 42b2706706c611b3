"""Which events lead to a reconcile. Pure."""
