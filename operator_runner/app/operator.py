"""The composition root of `run`: builds the operator, runs it and shuts it down in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

import structlog

from operator_runner import __version__
from operator_runner.ansible.executor import (
    BackgroundLauncher,
    check_patches,
    open_in_background,
    open_launcher,
)
from operator_runner.ansible.reserved_names import ReservedNamesLoader
from operator_runner.ansible.rundir import create_work_dir, resolve_work_dir
from operator_runner.ansible.templating.effective_types import log_types
from operator_runner.app.ansible_setup import log_plugins_with_memory, variable_names_of
from operator_runner.app.endpoints import (
    open_metrics,
    open_probes,
    open_role_metrics,
    open_traces_of,
)
from operator_runner.app.event_sources import EventSources
from operator_runner.app.execution import Execution
from operator_runner.app.leadership import LOSSES, RENEWALS, Leadership
from operator_runner.app.run_once import RunOnce
from operator_runner.app.signals import Interrupted, take_signals, unless_stopped, until_one_ends
from operator_runner.app.slot_handover import SlotHandover
from operator_runner.controller.dispatcher import Dispatcher
from operator_runner.controller.loop_throttle import LoopThrottle
from operator_runner.controller.operator_snapshot import OperatorSnapshot
from operator_runner.controller.predicates.primary_events import SeenResources
from operator_runner.controller.sources.project_watcher import ProjectWatcher, WatchesFile
from operator_runner.controller.sources.watch_readiness import WatchReadiness, log_readiness
from operator_runner.controller.workqueue import WorkQueue
from operator_runner.conversion.service import ConversionService
from operator_runner.core import installation
from operator_runner.core.async_tasks import end_tasks
from operator_runner.core.errors import ConfigError
from operator_runner.core.host_resources import HostResources
from operator_runner.core.model import GVK, Json, ObjectRef, Watch
from operator_runner.core.resource_states import ResourceStates
from operator_runner.core.settings import ServerStart, Settings
from operator_runner.kube.api import Api
from operator_runner.kube.cluster import KubeCluster
from operator_runner.kube.discovery import Discovery
from operator_runner.kube.session import Connection, connect
from operator_runner.olm import OperatorCondition, OperatorConditionReporter
from operator_runner.reconcile.decide import ON_REQUEST
from operator_runner.reconcile.dependencies import Dependencies
from operator_runner.reconcile.other_writers import OtherWriters
from operator_runner.reconcile.preview import Previewer
from operator_runner.reconcile.reconciler import Reconciler
from operator_runner.reconcile.results import ReconcileResult
from operator_runner.telemetry.announcements import announce_servers, announce_watches
from operator_runner.telemetry.logs import RUN_LOG
from operator_runner.telemetry.metrics import Metrics
from operator_runner.telemetry.runs.api import RunsApi
from operator_runner.telemetry.runs.records import RunStore
from operator_runner.telemetry.servers import HealthChecks
from operator_runner.telemetry.tracing.run_spans import Traces

_log = structlog.get_logger(__name__)
_CHANGES = _WATCHES_FILE, _INSTALLATION = "watches file", "installation"
"""Names of the tasks that end when the watches file was edited, and operator-runner upgraded."""


async def run(
    settings: Settings, watches: Sequence[Watch], load: Callable[[], Sequence[Watch]]
) -> int | None:
    """Run the operator until a signal asks it to stop; return the exit status of the process.

    0 after SIGTERM, SIGINT or SIGHUP, 1 if leadership was lost or a part failed. None after an
    upgrade of the files of operator-runner and, with `reload`, an edit of the watches file: the
    operator is to be started again. `load` reads the watches file again; it raises ConfigError if
    the operator cannot be started with it.

    Raises ConfigError for credentials, ports and directories that cannot be used.
    """
    stop = asyncio.Event()
    take_signals(stop)
    async with AsyncExitStack() as stack:
        try:
            operator = await unless_stopped(_start(settings, watches, stack, stop), stop)
        except Interrupted:
            return 0
        return await operator.run(load)


@asynccontextmanager
async def open_operator(settings: Settings, watches: Sequence[Watch]) -> AsyncIterator[Operator]:
    """Yield an operator that watches nothing and reconciles on request: `Operator.reconcile`.

    `settings` are those of `--once`. Raises ConfigError as `run`.
    """
    async with AsyncExitStack() as stack:
        operator = await _start(settings, watches, stack, asyncio.Event())
        stack.push_async_callback(operator.stop_watching)
        yield operator


async def _start(
    settings: Settings, watches: Sequence[Watch], stack: AsyncExitStack, stop: asyncio.Event
) -> Operator:
    """Build the operator and open its ports; all of it ends with `stack`."""
    health = HealthChecks()
    health.ready("watches", lambda: "starting")
    # First of all: on a busy node the rest takes longer than the kubelet waits for an answer.
    await open_probes(settings, health, stack)
    agent = f"operator-runner/{__version__}"
    connection = await connect(settings.kubeconfig, user_agent=agent, context=settings.context)
    stack.push_async_callback(connection.close)
    announce_watches(settings, watches, connection.server)
    traces = await stack.enter_async_context(open_traces_of(connection))
    metrics = Metrics(__version__, installation.commit())
    check_patches(settings.ansible)
    contents = [watch.content.path for watch in watches]
    await asyncio.to_thread(log_plugins_with_memory, settings.ansible, contents)
    names = ReservedNamesLoader(settings.ansible, contents)
    stack.push_async_callback(names.close)
    _log.info("Loading Ansible", executor=settings.executor)

    def started(why: ServerStart) -> None:
        metrics.machine.fork_servers.labels(why).inc()

    opening = open_launcher(
        settings.executor,
        settings.ansible,
        started,
        contents,
        names,
        work_dir=create_work_dir(resolve_work_dir(settings.work_dir)),
    )
    launcher = await stack.enter_async_context(open_in_background(opening))
    operator = Operator(
        settings,
        watches,
        connection,
        launcher,
        metrics,
        health=health,
        stop=stop,
        names=names,
        traces=traces,
    )
    await operator.serve(stack)
    return operator


class Operator:
    """All parts of a running operator."""

    def __init__(
        self,
        settings: Settings,
        watches: Sequence[Watch],
        connection: Connection,
        launcher: BackgroundLauncher,
        metrics: Metrics,
        *,
        health: HealthChecks,
        stop: asyncio.Event,
        names: ReservedNamesLoader,
        traces: Traces | None,
    ) -> None:
        """Build the parts; nothing is started yet. Raises ConfigError for a bad work dir.

        `stop` is set when the operator is to end.
        """
        self._settings, self._watches = settings, watches
        self._connection, self._launcher, self._stop = connection, launcher, stop
        self._metrics, self._health = metrics, health
        self._runs = RunStore()
        self._seen, self._states = SeenResources(), ResourceStates()
        RUN_LOG.open(self._runs.on_log)
        self._watch_readiness = self._observe(connection)
        self._api = Api(connection)
        self._discovery = Discovery(self._api)
        memory = HostResources().free_memory
        metrics.machine.free_memory.set_function(memory)
        self._leadership = leadership = Leadership(
            settings,
            watches,
            self._seen,
            api=self._api,
            discovery=self._discovery,
            metrics=metrics,
            namespace=connection.namespace,
        )
        self._queue = WorkQueue(
            settings.concurrency,
            settings.backoff,
            memory,
            None if leadership.gate is None else leadership.gate.may_reconcile,
        )
        self._cluster = KubeCluster(
            self._api, self._discovery, leadership.fences, is_shard=settings.shards is not None
        )
        self._sources = EventSources(
            settings,
            watches,
            self._api,
            self._discovery,
            cluster=self._cluster,
            queue=self._queue,
            leadership=leadership,
            metrics=metrics,
            readiness=self._watch_readiness,
            runs=self._runs,
            seen=self._seen,
            states=self._states,
        )
        self._dependents = self._sources.dependents
        self._execution = Execution(
            settings,
            watches,
            connection,
            self._api,
            self._discovery,
            launcher=launcher,
            leadership=leadership,
            dependents=self._dependents,
            runs=self._runs,
            states=self._states,
            queue=self._queue,
        )
        self._operator_condition: OperatorConditionReporter | None = None
        if name := settings.operator_condition:
            condition = OperatorCondition(self._api, connection.namespace, name)
            self._operator_condition = OperatorConditionReporter(condition, leadership.term)
        throttle = LoopThrottle(
            self._dependents.writes.is_recent_echo,
            self._dependents.writes.has_written,
            self._states,
            settings.concurrency.total * settings.concurrency.annotated_share,
        )
        self._role_metrics: dict[str, str] = {}
        self._handover = self._make_handover(throttle)
        self._reconcilers = self._make_reconcilers(names, traces)
        self._dispatcher = Dispatcher(
            self._queue,
            self._reconcilers,
            self._metrics,
            throttle,
            self._gone,
            states=self._states,
            reload=settings.reload,
            claim=None if self._handover is None else self._handover.claim,
            traces=traces,
        )
        self._conversions = ConversionService(
            settings.webhook, watches, self._api, self._discovery, metrics
        )

    def _observe(self, connection: Connection) -> WatchReadiness:
        """Count the requests of a connection; return the state of its watches."""
        readiness = WatchReadiness(
            (str(watch.gvk) for watch in self._watches),
            converted=(str(watch.gvk) for watch in self._watches if watch.conversions),
        )
        connection.on_watch(readiness.watch_started, readiness.watch_ended)
        connection.on_response(self._metrics.api_requests.count)
        return readiness

    def _make_handover(self, throttle: LoopThrottle) -> SlotHandover | None:
        """Return what takes resources over and hands them over, None without shards."""
        leadership = self._leadership
        if leadership.gate is None or leadership.sharding is None:
            return None
        handover = SlotHandover(
            leadership.gate,
            self._queue,
            throttle,
            seen=self._seen,
            states=self._states,
            sources=self._sources,
            execution=self._execution,
            metrics=self._metrics,
        )
        lease = self._settings.leader_election.lease_name
        leadership.sharding.events = handover.events(lease)
        return handover

    def _make_reconcilers(
        self, names: ReservedNamesLoader, traces: Traces | None
    ) -> dict[GVK, Reconciler]:
        settings = self._settings
        variable_names = variable_names_of(settings, names)
        execution, sharding = self._execution, self._leadership.sharding
        if traces is not None:
            self._runs.on_record(traces.run_ended)
        previewer = Previewer(execution.proxy, execution.executor, variable_names, settings.ansible)
        dependencies = Dependencies(
            cluster=self._cluster,
            access=execution.proxy,
            executor=execution.executor,
            dependents=self._dependents,
            metrics=self._metrics,
            variable_names=variable_names,
            other_writers=OtherWriters(
                lambda: datetime.now(UTC), settings.graceful_shutdown, self._states
            ),
            latest_version=self._seen.version,
            run_guard=None if self._operator_condition is None else self._operator_condition.guard,
            preview=previewer.preview,
            expressions=self._sources.expressions,
            states=self._states,
            fences=self._leadership.fences,
            claim=None if sharding is None else sharding.claim,
            records=self._runs,
            queue=self._queue,
            environment=self._role_metrics,
            traces=traces,
        )
        for watch in self._watches:
            self._metrics.watching(watch.gvk, settings.concurrency.limit(watch.gvk))
        return {
            watch.gvk: Reconciler(watch, dependencies, settings.ansible, settings.reconcile_period)
            for watch in self._watches
        }

    async def serve(self, stack: AsyncExitStack) -> None:
        """Open the other ports; they are closed when `stack` is. Raises ConfigError."""
        view = OperatorSnapshot(
            self._watches,
            self._settings.namespaces,
            lambda: self._leadership.is_leading,
            self._queue,
            self._sources.schedules,
            self._dependents,
            self._states,
            self._execution.executor.output,
        )
        api = RunsApi(self._runs, view)
        work_dir = self._execution.rundirs.base
        await open_metrics(
            self._settings, self._metrics, self._api, stack, runs=api, work_dir=work_dir
        )
        self._role_metrics |= await open_role_metrics(self._settings, self._metrics, stack)
        if self._settings.once is None:
            announce_servers(self._settings)
            await self._conversions.serve(stack, self._health)
        await self._execution.start(stack)
        # Not before: a standby replica is ready from here on.
        self._health.ready("watches", self._why_not_ready)
        self._health.ready("work-dir", self._execution.rundirs.check)

    async def run(self, load: Callable[[], Sequence[Watch]]) -> int | None:
        """Acquire leadership, work until a signal or a failure, and shut down; see `run`."""
        log_types(self._watches)
        if self._settings.once is not None:
            return await self._once().run(*self._settings.once)
        if not await self._leadership.acquire(self._stop):
            return 0
        working = [asyncio.create_task(part, name=name) for name, part in self._parts(load)]
        ended = await until_one_ends(working, self._stop)
        again = ended is not None and ended.get_name() in _CHANGES and not ended.exception()
        if again:
            ended = None
        await self._shut_down(working, ended)
        if again and not self._stop.is_set():
            return None
        if ended is not None and isinstance(error := ended.exception(), ConfigError):
            raise error
        return 0 if ended is None else 1

    def _once(self) -> RunOnce:
        """Return the reconcile of one resource, of `run --once`."""
        return RunOnce(
            self._settings,
            self._watches,
            self._discovery,
            self._cluster,
            namespace=self._connection.namespace,
            jobs=self._execution.jobs,
            dispatcher=self._dispatcher,
            end=self._dependents.stop,
            stop=self._stop,
        )

    async def reconcile(self, key: ObjectRef, uid: str) -> tuple[ReconcileResult, Json | None]:
        """Reconcile the resource with this uid as `--once` does; return the record of its run too.

        None if nothing was run. Failures are reported as those of any reconcile.
        """
        known = [each["id"] for each in self._runs.last(key, uid, 1)]
        result = await self._dispatcher.reconcile_once(key, ON_REQUEST)
        records = self._runs.last(key, uid, 1)
        return result, next((each for each in records if each["id"] not in known), None)

    async def stop_watching(self) -> None:
        """End the watches of dependents that reconciles on request have begun."""
        await self._dependents.stop()

    def _parts(
        self, load: Callable[[], Sequence[Watch]]
    ) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """Yield the tasks that run as long as the operator, with their names.

        Those of the watches file and of the installation end when it has changed.
        """
        yield _INSTALLATION, self._installation_replaced()
        yield "dispatcher", self._dispatcher.run()
        yield "loading of Ansible", self._launcher.failed()
        yield "watching", self._watch_primaries()
        yield "readiness", log_readiness(self._watch_readiness)
        if self._operator_condition is not None:
            yield "OperatorCondition", self._operator_condition.run()
        yield from self._sources.tasks()
        on_listed = None if self._handover is None else self._handover.enqueue
        yield from self._execution.tasks(on_listed)
        yield from self._leadership.tasks()
        if self._settings.reload:
            yield "project", self._project_watcher().run()
            file = WatchesFile(self._settings.watches_file, self._watches, load)
            yield _WATCHES_FILE, file.wait_edited()

    async def _installation_replaced(self) -> None:
        await installation.wait_replaced()
        _log.info("operator-runner was upgraded: restarting")

    def _project_watcher(self) -> ProjectWatcher:
        return ProjectWatcher(self._watches, self._seen, self._states, self._queue.add)

    async def _shut_down(
        self, working: Sequence[asyncio.Task[None]], ended: asyncio.Task[None] | None
    ) -> None:
        """Start no new runs; wait for running ones, unless leadership was lost."""
        lost = ended is not None and ended.get_name() in LOSSES
        if lost:
            self._connection.abort()
        if ended is not None:
            error = None if lost else ended.exception()
            _log.error(
                "Stopping: a component has ended",
                component=ended.get_name(),
                exc_info=None if isinstance(error, ConfigError) else error,
            )
        self._queue.close()
        if lost:
            await self._execution.leave_jobs()
        keep = RENEWALS | {"dispatcher"}
        await end_tasks([task for task in working if task.get_name() not in keep])
        if not lost:
            await self._leadership.start_leaving()
        grace = 0.0 if lost else self._settings.graceful_shutdown.total_seconds()
        await self._dispatcher.drain(grace, self._execution.leave_jobs)
        await self._dependents.stop()
        await end_tasks(working)
        try:
            if not lost and self._operator_condition is not None:
                await self._operator_condition.report_idle()
        finally:
            await self._leadership.release(self._connection.abort)

    async def _watch_primaries(self) -> None:
        signals = partial(take_signals, self._stop)
        await self._sources.watch_primaries(self._connection, self._execution.adopt, signals)

    def _gone(self, ref: ObjectRef) -> None:
        if not self._seen.uid(ref):
            # Otherwise a new resource has this name, or the event has not arrived yet.
            self._metrics.resource_gone(ref)

    def _why_not_ready(self) -> str | None:
        if self._stop.is_set():
            return "shutting down"
        if (fault := self._launcher.fault) is not None:
            return fault
        # A standby replica is ready. Otherwise a rolling update would wait for it forever while the
        # old leader holds the lease.
        return self._watch_readiness.not_ready_reason() if self._leadership.is_leading else None
