"""Find the operators whose API this user can read, by the manifests of their Pods."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from operator_runner.core.errors import ApiError, Forbidden
from operator_runner.core.model import Json
from operator_runner.core.settings import DEFAULT_WORK_DIR, Address
from operator_runner.kube.api import Api, list_pages
from operator_runner.telemetry.runs import access
from operator_runner.telemetry.runs.access import AUDIENCE, TOKEN_HEADER
from operator_runner.tools.operator_api.client import InvalidResponse, OperatorClient, base_of

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


_REFUSALS = (403, 404)
"""Statuses of a path that an earlier version of the operator lacks, or that RBAC does not grant."""
_TOKEN_SECONDS = 600
"""The shortest life that the API server gives a token."""
_SEARCH_SECONDS = 60.0
"""Between searches for further operators; tokens live longer."""


@dataclass(slots=True)
class Operators:
    """The operators that answer, and why others do not."""

    clients: list[OperatorClient] = field(default_factory=list)
    """Those that hold a Lease are before others."""
    faults: list[str] = field(default_factory=list)
    invalid: list[str] = field(default_factory=list)
    """Those of the faults that users should see though other operators answer."""

    @property
    def reason(self) -> str:
        """The reason why no operator answers, in a sentence."""
        faults = "; ".join(dict.fromkeys(self.faults))
        return faults or (
            f"found no Pod with the label {LABEL}, and no operator of this user and cluster with "
            f"the work dir {DEFAULT_WORK_DIR}; set --work-dir if yours has another"
        )

    async def collect(
        self,
        path: str,
        check: Callable[[Any], Json],
        params: dict[str, str] | None = None,
        *,
        optional: bool = False,
    ) -> list[Json]:
        """Return the items of a list of all operators, each with its operator.

        `check` returns an item or raises ValueError. An operator that fails is added to `faults`;
        if the path is `optional`, not one that lacks it or refuses it to this user.
        """
        found = await asyncio.gather(
            *(self._items(each, path, check, params, optional) for each in list(self.clients))
        )
        return [item for items in found for item in items]

    async def _items(
        self,
        client: OperatorClient,
        path: str,
        check: Callable[[Any], Json],
        params: dict[str, str] | None,
        optional: bool,
    ) -> list[Json]:
        try:
            items = (await client.get(path, params)).get("items")
            if not isinstance(items, list):
                raise InvalidResponse(client.name, "not a list")
            return [checked(client, each, check) for each in items]
        except ApiError as error:
            if not (optional and error.status in _REFUSALS):
                self.drop(client, error)
            return []

    def drop(self, client: OperatorClient, error: ApiError) -> None:
        """Remove an operator that does not answer."""
        self.faults.append(str(error))
        if isinstance(error, InvalidResponse):
            self.invalid.append(str(error))
        if client in self.clients:
            self.clients.remove(client)


def checked(client: OperatorClient, document: Any, check: Callable[[Any], Json]) -> Json:
    """Return a document with the operator that sent it. Raises InvalidResponse if `check` fails."""
    try:
        return {**check(document), "operator": client.name}
    except ValueError as error:
        raise InvalidResponse(client.name, str(error)) from error


@asynccontextmanager
async def find_operators(
    api: Api, namespace: str, work_dir: Path | None = None
) -> AsyncIterator[Operators]:
    """Find the operators of a cluster: that of `work_dir`, or on this machine and in Pods.

    Pods are searched in the whole cluster, and in `namespace` if only that is permitted.
    """
    async with aiohttp.ClientSession() as local:
        found = Operators()
        own = access.read(work_dir or DEFAULT_WORK_DIR)
        if own is not None and (work_dir or own.cluster == api.connection.server):
            headers = {"Authorization": f"Bearer {own.key}"}
            found.clients.append(
                OperatorClient(
                    f"operator at {own.url}", local, base_of(own.url), headers, verify=False
                )
            )
        elif work_dir is not None:
            found.faults.append(
                f"--work-dir={work_dir}: no operator of this user runs with this work dir"
            )
        if work_dir is None:
            await _add_pods(api, namespace, found)
        await _drop_unavailable(found)
        yield found


async def follow_operators(
    api: Api, namespace: str, work_dir: Path | None = None, *, pause: float
) -> AsyncGenerator[Operators]:
    """Yield the operators again each `pause` seconds, without end.

    They are searched for again after a minute, or as soon as one does not answer. Without an
    operator, each time is a new search.
    """
    while True:
        begun = time.monotonic()
        async with find_operators(api, namespace, work_dir) as operators:
            count = len(operators.clients)
            while True:
                yield operators
                await asyncio.sleep(pause)
                is_lost = len(operators.clients) < max(count, 1)
                if is_lost or time.monotonic() - begun >= _SEARCH_SECONDS:
                    break


async def _drop_unavailable(found: Operators) -> None:
    """Keep the operators that answer."""

    async def check(client: OperatorClient) -> None:
        try:
            await client.get("")
        except ApiError as error:
            found.drop(client, error)

    await asyncio.gather(*map(check, list(found.clients)))


async def _add_pods(api: Api, namespace: str, found: Operators) -> None:
    try:
        pods = await _pods(api, namespace)
    except ApiError as error:
        found.faults.append(f"cannot list Pods: {error}")
        return
    addresses = [address for pod in pods if (address := address_of(pod)) is not None]
    found.faults += [f"{each}: {each.fault}" for each in addresses if each.fault]
    reachable = [each for each in addresses if not each.fault]
    if len(reachable) > 1:
        reachable = holders_first(reachable, await _lease_holders(api, reachable))
    clients = await asyncio.gather(*(_client(api, each, found) for each in reachable))
    found.clients += filter(None, clients)


async def _lease_holders(api: Api, addresses: Sequence[PodAddress]) -> dict[str, str]:
    """Return the identity of the holder of each Lease that this user can read, by its path."""
    paths = sorted({each.lease_path for each in addresses if each.lease_path})

    async def holder(path: str) -> str:
        try:
            return str(((await api.request("GET", path)).get("spec") or {}).get("holderIdentity"))
        except ApiError:
            return ""

    return dict(zip(paths, await asyncio.gather(*map(holder, paths)), strict=True))


async def _pods(api: Api, namespace: str) -> Sequence[Json]:
    async def listed(path: str) -> Sequence[Json]:
        pages = list_pages(api, path, params={"labelSelector": LABEL})
        return [each async for page in pages for each in page["items"]]

    try:
        return await listed("/api/v1/pods")
    except Forbidden:
        return await listed(f"/api/v1/namespaces/{namespace}/pods")


async def _client(api: Api, address: PodAddress, found: Operators) -> OperatorClient | None:
    """Return the operator of a Pod, with a token of its ServiceAccount for this API alone."""
    path = f"/api/v1/namespaces/{address.namespace}/serviceaccounts/{address.service_account}/token"
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": [AUDIENCE], "expirationSeconds": _TOKEN_SECONDS},
    }
    try:
        answer = await api.request("POST", path, body=body)
    except ApiError as error:
        found.faults.append(f"{address}: cannot create a token for its API: {error}")
        return None
    headers = {TOKEN_HEADER: str((answer.get("status") or {}).get("token"))}
    url = api.connection.url(address.proxy_path)
    return OperatorClient(str(address), api.connection.http, base_of(url), headers)
