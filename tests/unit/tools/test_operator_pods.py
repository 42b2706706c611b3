"""Pods of operators: their Lease, and which of them is asked first."""

from __future__ import annotations

from operator_runner.tools.operator_api.discovery import PodAddress, address_of, holders_first

PATH = "/apis/coordination.k8s.io/v1/namespaces/shop/leases/web"


def address(name: str, *args: str) -> PodAddress:
    flags = ["--metrics-secure", "--metrics-require-rbac", *args]
    found = address_of(
        {
            "metadata": {"name": name, "namespace": "shop"},
            "spec": {"containers": [{"args": flags}]},
            "status": {"phase": "Running"},
        }
    )
    assert found is not None
    return found


def test_the_pod_that_holds_the_lease_is_first() -> None:
    """Others can have Pods with the label of operators, and standby replicas have fewer runs."""
    flag = "--leader-election-id=web"
    pods = [address("web"), address("web-1", flag), address("web-2", flag), address("other")]
    assert pods[1].lease_path == PATH
    found = holders_first(pods, {PATH: "web-2_1f0e"})
    assert [each.name for each in found] == ["web-2", "web", "web-1", "other"]
    assert holders_first(pods, {}) == pods


def test_the_namespace_of_the_lease_is_a_flag() -> None:
    """What cannot be a name is not part of a path."""
    flags = ("--leader-election-id=web", "--leader-election-namespace=shop")
    assert address("web", *flags).lease_path == PATH
    assert address("web", "--leader-election-id=../../secrets/x").lease_path == ""
