"""The cluster as the commands for resources use it: find, read, annotate and watch resources."""

from __future__ import annotations

import asyncio
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
)
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from operator_runner.core.model import GVK, Json, ObjectRef
from operator_runner.kube.api import MERGE_PATCH, Api
from operator_runner.kube.discovery import ApiResource, Discovery
from operator_runner.kube.kind_names import find_kind, of_resources
from operator_runner.tools.kubeconfig import Kubeconfig
from operator_runner.tools.operator_api.discovery import (
    Operators,
    find_operators,
    follow_operators,
)

_FIELD_MANAGER = "operator-runner-cli"
_POLL_SECONDS = 0.25
_READS_PER_SECOND = 50
"""Of all waits together, as the requests of kubectl."""
_CONCURRENT_READS = 8
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


async def concurrently(
    read: Callable[[_Item], Awaitable[_Result]], items: Iterable[_Item]
) -> list[_Result]:
    """Read something for each item, a few at a time; return the results in the order of items."""
    limit = asyncio.Semaphore(_CONCURRENT_READS)

    async def limited(item: _Item) -> _Result:
        async with limit:
            return await read(item)

    return await asyncio.gather(*map(limited, items))


@dataclass(frozen=True, slots=True)
class NamedResource:
    """A resource that a user has named."""

    resource: ApiResource
    ref: ObjectRef

    @property
    def path(self) -> str:
        """The path of the resource in the API."""
        return self.resource.path(self.ref.namespace, self.ref.name)

    def __str__(self) -> str:
        """`page.debug.example.com/home`, as kubectl writes it."""
        return self.ref.full_name


class Deadline:
    """The end of the time for all resources of a command."""

    def __init__(self, within: timedelta) -> None:
        """Begin now."""
        self.within = within
        self._end = time.monotonic() + within.total_seconds()

    @property
    def has_passed(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() >= self._end

    async def sleep(self, seconds: float) -> None:
        """Sleep, but not beyond the end."""
        await asyncio.sleep(max(min(seconds, self._end - time.monotonic()), 0))


class ClusterView:
    """The resources of one cluster, as a user sees them. Every method raises ApiError."""

    def __init__(self, api: Api, served: list[ApiResource], namespace: str) -> None:
        """Take all resources of the API server, and the namespace of the user."""
        self.api = api
        self.served = served
        self.namespace = namespace
        self._ambiguous = ambiguous_kinds(served)
        self._waits = 0
        self._reading = asyncio.Semaphore(_CONCURRENT_READS)

    @property
    def listable(self) -> list[ApiResource]:
        """The kinds that can be listed, each in its preferred version."""
        found: dict[tuple[str, str], ApiResource] = {}
        for each in self.served:
            if "list" in each.verbs:
                found.setdefault((each.gvk.group, each.plural), each)
        return list(found.values())

    @property
    def custom_kinds(self) -> list[ApiResource]:
        """Those of CRDs."""
        return [each for each in self.listable if not each.gvk.is_built_in]

    def resource(self, kind: str) -> ApiResource:
        """Return the resource with this kind, plural or short name. Raises ConfigError."""
        gvk = find_kind(kind, of_resources(self.served))
        return next(each for each in self.served if each.gvk == gvk)

    def is_ambiguous(self, kind: str) -> bool:
        """Return whether kinds of several groups have this name: it does not say which is meant."""
        return kind.lower() in self._ambiguous

    def find(self, kind: str, name: str) -> NamedResource:
        """Return what a user has named, whether it exists or not. Raises ConfigError."""
        resource = self.resource(kind)
        namespace = self.namespace if resource.namespaced else ""
        return NamedResource(resource, ObjectRef(resource.gvk, namespace, name))

    def find_operators(self, work_dir: Path | None) -> AbstractAsyncContextManager[Operators]:
        """Find the operators of the cluster: those that answer this user, or that of a work dir."""
        return find_operators(self.api, self.namespace, work_dir)

    def follow_operators(
        self, work_dir: Path | None = None, *, pause: float
    ) -> aclosing[AsyncGenerator[Operators]]:
        """Find them again each `pause` seconds, without end."""
        return aclosing(follow_operators(self.api, self.namespace, work_dir, pause=pause))

    async def read(self, target: NamedResource) -> Json:
        """Return the resource. Raises NotFound."""
        return await self.api.request("GET", target.path)

    async def annotate(self, target: NamedResource, annotations: Mapping[str, str | None]) -> Json:
        """Set annotations, remove those that are None, and return the resource. NotFound."""
        return await self.api.request(
            "PATCH",
            target.path,
            params={"fieldManager": _FIELD_MANAGER},
            body={"metadata": {"annotations": dict(annotations)}},
            content_type=MERGE_PATCH,
        )

    async def wait(
        self, target: NamedResource, is_met: Callable[[Json], bool], deadline: Deadline
    ) -> Json | None:
        """Read the resource until it meets a condition; return it, None after the deadline.

        It is read at least once. Several waits are possible at a time. Raises NotFound once it is
        deleted.
        """
        self._waits += 1
        try:
            while True:
                async with self._reading:
                    body = await self.read(target)
                if is_met(body):
                    return body
                if deadline.has_passed:
                    return None
                await deadline.sleep(max(_POLL_SECONDS, self._waits / _READS_PER_SECOND))
        finally:
            self._waits -= 1


def ambiguous_kinds(served: Iterable[ApiResource]) -> frozenset[str]:
    """Return the names of kinds, in lower case, that are in several groups."""
    groups: dict[str, set[str]] = {}
    for each in served:
        groups.setdefault(each.gvk.kind.lower(), set()).add(each.gvk.group)
    return frozenset(kind for kind, found in groups.items() if len(found) > 1)


def kind_name(gvk: GVK) -> str:
    """Return `page.debug.example.com`, or `configmap` for the core group."""
    return gvk.kind_and_group.lower()


@asynccontextmanager
async def open_cluster(kubeconfig: Kubeconfig, namespace: str | None) -> AsyncIterator[ClusterView]:
    """Connect to the cluster of a kubeconfig and discover its kinds.

    `namespace` None is that of the kubeconfig. Raises ApiError and ConfigError.
    """
    connection = await kubeconfig.connect()
    try:
        api = Api(connection)
        served = await Discovery(api).served()
        yield ClusterView(api, served, namespace or connection.namespace or "default")
    finally:
        await connection.close()
