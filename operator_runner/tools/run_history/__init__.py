"""Looks back: the last runs of a resource, and what led to each of them."""
