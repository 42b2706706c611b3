"""Predicates: decide which events lead to a reconcile. Pure."""
