"""Owners whose runs write objects."""

from __future__ import annotations

import pytest

from operator_runner.core.model import GVK, ObjectRef
from operator_runner.proxy.ownership import Owner


@pytest.fixture
def owner() -> Owner:
    """Give a namespaced owner."""
    gvk = GVK("cache.example.com", "v1alpha1", "Memcached")
    return Owner(ObjectRef(gvk, "team", "sample"), "uid-1")


@pytest.fixture
def global_owner() -> Owner:
    """Give a cluster-scoped owner."""
    gvk = GVK("cache.example.com", "v1alpha1", "Fleet")
    return Owner(ObjectRef(gvk, "", "all"), "uid-2")
