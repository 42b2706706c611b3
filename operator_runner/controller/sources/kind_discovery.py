"""Discover which of the watched kinds are served: a CRD may be installed after the operator."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NoReturn

import structlog

from operator_runner.controller.sources.watch_readiness import WatchReadiness
from operator_runner.core.async_tasks import end_tasks
from operator_runner.core.errors import ApiError, Expired, NotFound, Unavailable
from operator_runner.core.model import GVK, Watch
from operator_runner.kube.discovery import ApiResource, Discovery
from operator_runner.kube.watch import Backoff

_log = structlog.get_logger(__name__)
_POLL_SECONDS = 2.0
"""Interval of the discovery of a kind whose CRD is missing."""


class KindDiscovery:
    """Discovers the kinds of watches.yaml, whose CRDs may be installed or deleted at any time."""

    def __init__(
        self,
        discovery: Discovery,
        watches: Sequence[Watch],
        namespaces: Sequence[str],
        readiness: WatchReadiness,
    ) -> None:
        """Set the paths on which each kind is watched in `readiness`."""
        self._discovery = discovery
        self._watches = watches
        self._namespaces = namespaces
        self._watch_readiness = readiness
        self._missing: list[GVK] = []
        self._reasons: dict[GVK, str] = {}
        """The logged reason of each missing kind."""
        self._found: dict[GVK, ApiResource] = {}
        self._discovered = asyncio.Event()
        self._added = asyncio.Event()

    async def wait_discovered(self) -> None:
        """Return when discovery of every kind was tried once."""
        await self._discovered.wait()

    def resources(self) -> list[ApiResource]:
        """Return the resources of the kinds that the last discovery found."""
        return list(self._found.values())

    async def wait_added(self) -> None:
        """Return when a kind that was missing is served."""
        await self._added.wait()
        self._added.clear()

    async def rediscover(self) -> None:
        """Discover all kinds again, after a watch failed."""
        # The API server serves a deleted CRD for a moment longer.
        await asyncio.sleep(_POLL_SECONDS)
        for watch in self._watches:
            self._discovery.forget(watch.gvk)
        await self._discover_all()

    async def run(self) -> None:
        """Poll for missing kinds until cancelled."""
        await self._discover_all()
        self._discovered.set()
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            added = [gvk for gvk in self._missing if await self._try(gvk)]
            self._missing = [gvk for gvk in self._missing if gvk not in added]
            if added:
                self._added.set()

    async def _discover_all(self) -> None:
        gvks = [watch.gvk for watch in self._watches]
        before = set(self._found)
        self._found.clear()
        self._missing = [gvk for gvk in gvks if not await self._try(gvk, before=gvk in before)]
        for gvk in self._missing:
            self._watch_readiness.kind_removed(str(gvk))

    async def _try(self, gvk: GVK, *, before: bool = False) -> bool:
        """Discover a kind; return whether it can be watched. `before`: whether it was watched."""
        try:
            resource = await self._discovery.resource(gvk)
            _raise_if_unwatchable(resource)
        except ApiError as error:
            self._log_missing(gvk, error, before=before)
            return False
        if self._reasons.pop(gvk, None) is not None:
            _log.info("Watched kind is served", gvk=str(gvk))
        self._found[gvk] = resource
        self._watch_readiness.require(str(gvk), self._paths(resource))
        return True

    def _log_missing(self, gvk: GVK, error: ApiError, *, before: bool) -> None:
        """Log why a kind is missing, once for each reason."""
        reason = str(error)
        # An API server that cannot be reached is the same reason for all kinds.
        if reason not in self._reasons.values():
            if isinstance(error, Unavailable):
                _log.warning("Waiting for the API server", error=reason)
            elif before:
                _log.warning("Watched kind is no longer served", gvk=str(gvk), error=reason)
            else:
                _log.warning("Waiting for a watched kind", gvk=str(gvk), error=reason)
        self._reasons[gvk] = reason

    def _paths(self, resource: ApiResource) -> list[str]:
        if not (resource.namespaced and self._namespaces):
            return [resource.path()]
        return [resource.path(namespace) for namespace in self._namespaces]


async def watch_kinds_forever(
    watch: Callable[[Sequence[ApiResource]], Coroutine[Any, Any, None]], kinds: KindDiscovery
) -> NoReturn:
    """Watch the served kinds; restart when one is added or deleted, and after any failure."""
    await kinds.wait_discovered()
    delay = Backoff()
    while True:
        if not kinds.resources():
            await kinds.wait_added()
            continue
        started = time.monotonic()
        watching = asyncio.create_task(watch(kinds.resources()))
        adding = asyncio.create_task(kinds.wait_added())
        try:
            await asyncio.wait([watching, adding], return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                watching.result()
        except (NotFound, Expired) as error:
            _log.warning("Restarting watches", error=str(error))
            await kinds.rediscover()
        except Exception as error:  # noqa: BLE001 no error may end the operator
            _log.exception("Restarting watches after an unexpected error", error=str(error))
            await delay.wait(time.monotonic() - started)
            await kinds.rediscover()
        finally:
            await end_tasks([watching, adding])


def _raise_if_unwatchable(resource: ApiResource) -> None:
    if not {"list", "watch"} <= resource.verbs:
        raise ApiError(f"{resource.plural} does not support list and watch")
