"""Derive the NetworkPolicies of runs that are Kubernetes Jobs. Pure.

Pods of Jobs connect to the operator and to DNS servers, and nothing connects to them. The
operator's port for Jobs is open to these Pods only; its other ports are not restricted.
"""

from __future__ import annotations

from collections.abc import Sequence

from operator_runner.core.model import Json, Watch
from operator_runner.tools.rbac.manager_deployment import PLACEHOLDER, Manager

_NAMESPACE_LABEL = "kubernetes.io/metadata.name"
_POD_LABELS = {"app.kubernetes.io/managed-by": "operator-runner"}
"""Labels that `ansible.jobs.manifest` sets."""
_DNS_PORTS = (53, 5353)
"""Ports of the Service, and of the Pods of OpenShift's DNS: policies see the port of the Pod."""
_LAST_PORT = 65535


def network_policies_of(watches: Sequence[Watch], manager: Manager, port: int) -> list[Json]:
    """Return the NetworkPolicies for a port of the operator, none without Jobs.

    A port of 0 means that Pods do not connect to Pods of the operator.
    """
    names = {watch.job.namespace or manager.namespace for watch in watches if watch.job is not None}
    if not names or port == 0:
        return []
    namespaces = sorted(names)
    policies = [_of_jobs(namespace, manager, port) for namespace in namespaces]
    return [_of_manager(namespaces, manager, port), *policies]


def _of_manager(namespaces: Sequence[str], manager: Manager, port: int) -> Json:
    """Return the policy that opens the port for Jobs to their Pods, and other ports to all."""
    jobs = [_peer(namespace, manager.namespace, _POD_LABELS) for namespace in namespaces]
    ranges = [(1, port - 1), (port + 1, _LAST_PORT)]
    others = [
        {"protocol": protocol, "port": first, "endPort": last}
        for protocol in ("TCP", "UDP")
        for first, last in ranges
        if first <= last
    ]
    spec = {
        "podSelector": {"matchLabels": dict(manager.labels)},
        "policyTypes": ["Ingress"],
        "ingress": [{"from": jobs, "ports": [_tcp(port)]}, {"ports": others}],
    }
    return _policy("operator-jobs", manager.namespace, spec)


def _of_jobs(namespace: str, manager: Manager, port: int) -> Json:
    """Return the policy of Pods of Jobs."""
    operator = _peer(manager.namespace, namespace, dict(manager.labels))
    dns = [{"protocol": each, "port": number} for number in _DNS_PORTS for each in ("UDP", "TCP")]
    spec = {
        "podSelector": {"matchLabels": _POD_LABELS},
        "policyTypes": ["Ingress", "Egress"],
        "egress": [{"to": [operator], "ports": [_tcp(port)]}, {"ports": dns}],
    }
    return _policy("jobs", namespace, spec)


def _peer(namespace: str, seen_from: str, labels: dict[str, str]) -> Json:
    """Return the Pods with these labels in a namespace, for a policy in `seen_from`."""
    peer: Json = {"podSelector": {"matchLabels": labels}}
    if namespace == seen_from:
        return peer
    # kustomize sets the name of the operator's namespace, but not in selectors.
    known = {} if namespace == PLACEHOLDER else {"matchLabels": {_NAMESPACE_LABEL: namespace}}
    return {"namespaceSelector": known, **peer}


def _tcp(port: int) -> Json:
    return {"protocol": "TCP", "port": port}


def _policy(name: str, namespace: str, spec: Json) -> Json:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }
