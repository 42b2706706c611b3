"""The ready addresses of a Service are in a ConfigMap, in the format of the namespace."""

from __future__ import annotations

from typing import Any

from operator_runner.testing import Reconcile

FORMAT = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "lines", "labels": {"route-config": "lines"}},
    "data": {"format": "to {address}:{port}"},
}


def endpoints(*addresses: str) -> dict[str, Any]:
    """Return the Endpoints of a Service with these ready addresses."""
    subset = {"addresses": [{"ip": each} for each in addresses], "ports": [{"port": 80}]}
    return {
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": {"name": "web"},
        "subsets": [subset] if addresses else [],
    }


def test_the_addresses_of_a_service_are_routes(reconcile: Reconcile) -> None:
    """The next run changes nothing; the route of a removed address is removed."""
    outcome = reconcile(endpoints("10.0.0.1", "10.0.0.2"), objects=[FORMAT])
    assert outcome.successful
    routes = outcome.created("ConfigMap", "routes.web")["data"]["routes"]
    assert routes.split("\n")[:2] == ["to 10.0.0.1:80", "to 10.0.0.2:80"]

    again = reconcile(endpoints("10.0.0.1", "10.0.0.2"), objects=[FORMAT])
    assert (again.created, again.changed, again.deleted) == ([], [], [])

    fewer = reconcile(endpoints("10.0.0.2"), objects=[FORMAT])
    (changed,) = fewer.changed
    assert [each.path for each in changed.differences] == ["data.routes"]
