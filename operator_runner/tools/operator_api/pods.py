"""Find the address of the API in the manifest of an operator's Pod. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from operator_runner.core.model import Json
from operator_runner.core.settings import Address

LABEL = "control-plane=controller-manager"
"""Label of the Pods of operators, in projects of operator-sdk and of operator-runner."""
_BIND, _SECURE, _RBAC = "--metrics-bind-address", "--metrics-secure", "--metrics-require-rbac"
_DEFAULT_ADDRESS = ":8443"
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


@dataclass(frozen=True, slots=True)
class PodAddress:
    """A Pod and the port of its metrics, or `fault`: why its API cannot be reached from outside."""

    namespace: str
    name: str
    service_account: str
    port: int = 0
    fault: str = ""
    lease_path: str = ""
    """The API path of its Lease, empty if its flags do not name one."""

    @property
    def proxy_path(self) -> str:
        """The API path of the API server's proxy to this port, which speaks TLS."""
        return f"/api/v1/namespaces/{self.namespace}/pods/https:{self.name}:{self.port}/proxy"

    def __str__(self) -> str:
        """`Pod operators/manager-1`."""
        return f"Pod {self.namespace}/{self.name}"


def address_of(pod: Json) -> PodAddress | None:
    """Return the address of the API of a running Pod; None if it is not one of an operator here.

    Only Pods with the flags of operator-runner are asked: other Pods have the label, too.
    """
    metadata, spec = pod["metadata"], pod.get("spec") or {}
    if (pod.get("status") or {}).get("phase") != "Running" or metadata.get("deletionTimestamp"):
        return None
    for container in spec.get("containers") or ():
        words = [*map(str, container.get("command") or ()), *map(str, container.get("args") or ())]
        if not any(word.startswith(("--metrics-", "--leader-elect")) for word in words):
            continue
        port, fault = _port(words)
        account = str(spec.get("serviceAccountName") or "default")
        namespace = metadata["namespace"]
        lease = _lease_path(words, namespace)
        return PodAddress(namespace, metadata["name"], account, port, fault, lease)
    return None


def holders_first(
    addresses: Sequence[PodAddress], identities: Mapping[str, str]
) -> list[PodAddress]:
    """Return addresses with those before others whose Pod holds its Lease.

    `identities` has the holders by the path of the Lease: the Pod's name and a random part.
    """

    def is_holder(address: PodAddress) -> bool:
        return identities.get(address.lease_path, "").startswith(f"{address.name}_")

    return sorted(addresses, key=lambda each: not is_holder(each))


def _lease_path(words: Sequence[str], own_namespace: str) -> str:
    lease = _value(words, "--leader-election-id")
    namespace = _value(words, "--leader-election-namespace") or own_namespace
    if not (lease and {"/", "."}.isdisjoint(namespace) and "/" not in lease):
        return ""
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{lease}"


def _port(words: Sequence[str]) -> tuple[int, str]:
    """Return the port, and why it cannot be reached, empty if it can."""
    try:
        address = Address.parse(_value(words, _BIND) or _DEFAULT_ADDRESS)
    except ValueError as error:
        return 0, f"{_BIND}: {error}"
    if address is None:
        return 0, f"{_BIND}=0: its metrics, and the API beside them, are disabled"
    if address.host in _LOOPBACK:
        return 0, f"{_BIND}={address.host}:{address.port} is not reachable from outside the Pod"
    if not (_is_set(words, _SECURE) and _is_set(words, _RBAC)):
        return 0, f"{_SECURE} and {_RBAC} are not set, which the API needs"
    return address.port, ""


def _value(words: Sequence[str], flag: str) -> str:
    """Return the value of the last occurrence of a flag, empty without one."""
    found = ""
    for number, word in enumerate(words):
        if word.startswith(f"{flag}="):
            found = word.partition("=")[2]
        elif word == flag and number + 1 < len(words):
            found = words[number + 1]
    return found


def _is_set(words: Sequence[str], flag: str) -> bool:
    values = [word.partition("=")[2] or "true" for word in words if word.split("=")[0] == flag]
    return bool(values) and values[-1].lower() in {"true", "1", "t"}
