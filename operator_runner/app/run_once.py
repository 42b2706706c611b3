"""`run --once`: find a resource, reconcile it once, and return the exit status."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import structlog

from operator_runner.app.job_serving import JobServing
from operator_runner.app.signals import Interrupted, unless_stopped
from operator_runner.config.watches.selection import is_selected
from operator_runner.controller.dispatcher import Dispatcher
from operator_runner.core.errors import INTERRUPTED, ApiError, ConfigError, NotFound
from operator_runner.core.model import ObjectRef, Watch
from operator_runner.core.settings import Settings
from operator_runner.kube.cluster import KubeCluster
from operator_runner.kube.discovery import Discovery
from operator_runner.kube.kind_names import find_watched, of_resources
from operator_runner.reconcile.decide import ONCE
from operator_runner.reconcile.results import Gone, NoRun, ReconcileResult, Succeeded

_log = structlog.get_logger(__name__)


class RunOnce:
    """Reconciles one resource, as `run` does after an event of it."""

    def __init__(
        self,
        settings: Settings,
        watches: Sequence[Watch],
        discovery: Discovery,
        cluster: KubeCluster,
        *,
        namespace: str,
        jobs: JobServing | None,
        dispatcher: Dispatcher,
        end: Callable[[], Awaitable[None]],
        stop: asyncio.Event,
    ) -> None:
        """`namespace` is the operator's. `end` is called at last; `stop` interrupts."""
        self._settings, self._watches = settings, watches
        self._discovery, self._cluster = discovery, cluster
        self._namespace, self._jobs = namespace, jobs
        self._dispatcher, self._end, self._stop = dispatcher, end, stop

    async def run(self, kind: str, name: str) -> int:
        """Reconcile one resource; return 0 if its run succeeded, 1 if not, 130 if interrupted.

        Raises ConfigError for a kind that no watch has.
        """
        key = await self._find(kind, name)
        try:
            if self._jobs is not None:
                await unless_stopped(self._jobs.open(), self._stop)
            work = self._dispatcher.reconcile_once(key, ONCE)
            return exit_status(key, await unless_stopped(work, self._stop))
        except Interrupted:
            return INTERRUPTED
        finally:
            await self._end()

    async def _find(self, kind: str, name: str) -> ObjectRef:
        """Return the resource with this kind and name, in the version of its watch.

        Raises ConfigError for a kind that no watch of the watches file has.
        """
        watched = self._settings.namespaces
        default = watched[0] if len(watched) == 1 else self._namespace
        namespace = self._settings.once_namespace or default
        missing: list[str] = []
        try:
            served = await self._discovery.served()
            for watch in self._watches:
                try:
                    await self._discovery.resource(watch.gvk)
                except NotFound as error:
                    missing.append(str(error))
        except ApiError as error:
            raise ConfigError(f"--once: {error}") from error
        try:
            kinds = [watch.gvk for watch in self._watches]
            file = str(self._settings.watches_file)
            named = find_watched(kind, of_resources(served), kinds, file)
        except ConfigError as error:
            problems = dict.fromkeys([*error.problems, *missing])
            raise ConfigError(f"--once: {'; '.join(problems)}") from error
        namespaced = {each.gvk for each in served if each.namespaced}
        found: list[ObjectRef] = []
        for watch in self._watches:
            if watch.gvk in named:
                key = ObjectRef(watch.gvk, namespace if watch.gvk in namespaced else "", name)
                found.append(key)
                try:
                    body = await self._cluster.get(key)
                except ApiError as error:
                    raise ConfigError(f"--once: {error}") from error
                if body is not None and is_selected(body, watch):
                    return key
        return found[0]


def exit_status(key: ObjectRef, result: ReconcileResult) -> int:
    """Return the exit status of `--once`; log why nothing was run."""
    match result:
        case Succeeded() | NoRun(reason=""):
            return 0
        case NoRun(reason=reason):
            _log.error("Nothing was run", resource=str(key), reason=reason)
        case Gone():
            _log.error("Nothing was run", resource=str(key), reason="Resource does not exist")
    return 1
