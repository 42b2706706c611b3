"""The ready addresses of a Service are in a ConfigMap."""

from __future__ import annotations

from typing import Any

from operator_runner.testing import Reconcile

ENDPOINTS: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Endpoints",
    "metadata": {"name": "web"},
    "subsets": [{"addresses": [{"ip": "192.0.2.7"}], "ports": [{"port": 80}]}],
}
FORMAT: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "format", "labels": {"route-config": ""}},
    "data": {"format": "to {address}"},
}


def test_the_format_of_the_namespace_is_applied(reconcile: Reconcile) -> None:
    """The ConfigMap is written once."""
    outcome = reconcile(ENDPOINTS, objects=[FORMAT])
    assert outcome.successful
    assert "to 192.0.2.7" in outcome.created("ConfigMap", "routes.web")["data"]["routes"]
    again = reconcile(ENDPOINTS)
    assert again.successful
    assert (again.created, again.changed) == ([], [])
