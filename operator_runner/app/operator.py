"""The operator: builds the real parts, runs them, and ends them in order."""

from __future__ import annotations

import asyncio
import functools
import signal
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

import structlog

from operator_runner import __version__
from operator_runner.ansible.background_launcher import (
    BackgroundLauncher,
    open_in_background,
)
from operator_runner.ansible.executor import (
    AnsibleExecutor,
    check_patches,
    open_launcher,
)
from operator_runner.ansible.first_task import check_first_task
from operator_runner.ansible.jobs.client import JobClient
from operator_runner.ansible.jobs.launcher import JobLauncher
from operator_runner.ansible.reserved_names import ReservedNamesLoader
from operator_runner.ansible.templating.effective_types import log_types
from operator_runner.app import terminal
from operator_runner.app.ansible_setup import (
    content_reader_of,
    installation_of,
    rundirs_of,
    variable_names_of,
)
from operator_runner.app.endpoints import open_metrics, open_probes
from operator_runner.app.job_serving import JobServing
from operator_runner.app.once import content_of, exit_status, find_resource
from operator_runner.app.run_access import OwnedAccess, RecordedWrites
from operator_runner.app.run_files import RunFiles
from operator_runner.app.shard_gate import ShardGate
from operator_runner.app.signals import take_signals, until_one_ends
from operator_runner.app.streams import ObjectStreams
from operator_runner.app.traces import open_traces_of
from operator_runner.app.unchanged_inputs import UnchangedInputs
from operator_runner.config.watches import trigger_targets
from operator_runner.config.watches.reference_targets import referenced
from operator_runner.config.watches.relevance import is_deselected, is_relevant
from operator_runner.config.watches.schedules import timetable
from operator_runner.controller.backoff_handover import BackoffHandover
from operator_runner.controller.dispatcher import Dispatcher
from operator_runner.controller.loop_throttle import LoopThrottle
from operator_runner.controller.operator_view import RunningOperator
from operator_runner.controller.predicates.chosen_fields import ChosenFields
from operator_runner.controller.sharding import Sharding, SlotEvents
from operator_runner.controller.sources.annotated_periods import AnnotatedPeriods
from operator_runner.controller.sources.dependents import Dependents
from operator_runner.controller.sources.failed_expressions import FailedExpressions
from operator_runner.controller.sources.kinds import Kinds, watch_kinds_forever
from operator_runner.controller.sources.primary import PrimaryWatcher
from operator_runner.controller.sources.project import ProjectWatcher
from operator_runner.controller.sources.readiness_log import log_readiness
from operator_runner.controller.sources.references import References
from operator_runner.controller.sources.schedule import Schedules
from operator_runner.controller.sources.shared_watches import SharedWatches
from operator_runner.controller.sources.triggers import Sinks, Triggers
from operator_runner.controller.sources.watch_readiness import WatchReadiness
from operator_runner.controller.sources.watches_file import WatchesFile
from operator_runner.controller.workqueue import WorkQueue
from operator_runner.conversion.service import ConversionService
from operator_runner.core.async_tasks import end_tasks
from operator_runner.core.backoff import BackoffState
from operator_runner.core.errors import ConfigError
from operator_runner.core.fencing import Fence, Fences
from operator_runner.core.host_resources import HostResources
from operator_runner.core.model import (
    GVK,
    Cause,
    EventSpec,
    Json,
    ObjectRef,
    Trigger,
    Watch,
    uid_of,
)
from operator_runner.core.settings import Address, JobSettings, Settings
from operator_runner.core.sharding import slot_of
from operator_runner.kube.api import Api
from operator_runner.kube.certificate_sources import SecretCertificates
from operator_runner.kube.cluster import KubeCluster
from operator_runner.kube.discovery import ApiResource, Discovery
from operator_runner.kube.leader_election import LeaderElector
from operator_runner.kube.membership import Membership
from operator_runner.kube.run_archive import RunArchive
from operator_runner.kube.session import Connection, connect
from operator_runner.kube.shard_leases import ShardLeases
from operator_runner.kube.watch import MetadataEvent
from operator_runner.net.certificate_authority import CertificateLifetimes
from operator_runner.olm import OperatorConditionReporter
from operator_runner.proxy.job_server import JobServer
from operator_runner.proxy.server import Proxy
from operator_runner.reconcile.dependencies import Dependencies
from operator_runner.reconcile.expression_conditions import ExpressionConditions
from operator_runner.reconcile.other_writers import OtherWriters
from operator_runner.reconcile.preview import Previewer
from operator_runner.reconcile.reconciler import Reconciler
from operator_runner.reconcile.results import ReconcileResult
from operator_runner.telemetry.announcements import announce_servers, announce_watches
from operator_runner.telemetry.commit import commit
from operator_runner.telemetry.metrics import Metrics
from operator_runner.telemetry.probes import HealthChecks
from operator_runner.telemetry.runs.api import RunsApi
from operator_runner.telemetry.runs.run_log import RUN_LOG
from operator_runner.telemetry.runs.store import RunStore
from operator_runner.telemetry.tracing.traces import Traces

_log = structlog.get_logger(__name__)
_TRIGGERS = {
    "references": Trigger.REFERENCE,
    "triggers": Trigger.TRIGGER,
    "wakeOn": Trigger.DEPENDENT,
}
"""Cause of the run that writes the condition of an expression, by the key of the watch."""
_WATCHES_FILE = "watches file"
"""Name of the task that ends when the watches file was edited."""


async def run(
    settings: Settings, watches: Sequence[Watch], load: Callable[[], Sequence[Watch]]
) -> int | None:
    """Run the operator until a signal asks it to stop; return the exit status of the process.

    0 after SIGTERM, SIGINT or SIGHUP, 1 if leadership was lost or a part failed. None, with
    `reload`, after an edit of the watches file: the operator is to be started again. `load` reads
    that file again; it raises ConfigError if the operator cannot be started with it.

    Raises ConfigError for credentials, ports and directories that cannot be used.
    """
    stop = asyncio.Event()
    take_signals(stop)
    async with AsyncExitStack() as stack:
        starting = asyncio.create_task(_start(settings, watches, stack, stop))
        if await until_one_ends([starting], stop) is None:
            await end_tasks([starting])
            return 0
        return await starting.result().run(load)


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
    connection = await connect(settings.kubeconfig, user_agent=f"operator-runner/{__version__}")
    stack.push_async_callback(connection.close)
    announce_watches(settings, watches, connection.server)
    traces = await stack.enter_async_context(open_traces_of(connection))
    metrics = Metrics(__version__, commit())
    check_patches(settings.ansible)
    contents = [watch.content.path for watch in watches]
    names = ReservedNamesLoader(settings.ansible, contents)
    stack.push_async_callback(names.close)
    _log.info("Loading Ansible", executor=settings.executor)
    started = metrics.machine.fork_servers.inc
    opening = open_launcher(settings.executor, settings.ansible, started, contents, names)
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
        traces: Traces,
    ) -> None:
        """Build the parts; nothing is started yet. Raises ConfigError for a bad work dir.

        `stop` is set when the operator is to end.
        """
        self._settings, self._watches = settings, watches
        self._connection, self._launcher, self._stop = connection, launcher, stop
        self._stack = AsyncExitStack()
        self._leading = False
        self._metrics = metrics
        self._runs = RunStore()
        RUN_LOG.open(self._runs.on_log)
        self._health = health
        self._watch_readiness = WatchReadiness(
            (str(watch.gvk) for watch in watches),
            converted=(str(watch.gvk) for watch in watches if watch.conversions),
        )
        connection.on_watch(self._watch_readiness.watch_started, self._watch_readiness.watch_ended)
        connection.on_response(self._metrics.api_requests.count)
        self._api = Api(connection)
        self._discovery = Discovery(self._api)
        self._streams = ObjectStreams(self._api, self._discovery, settings.namespaces)
        self._kinds = Kinds(self._discovery, watches, settings.namespaces, self._watch_readiness)
        memory = HostResources().free_memory
        metrics.machine.free_memory.set_function(memory)
        self._queue = WorkQueue(settings.concurrency, settings.backoff, memory)
        rundirs = self._rundirs = rundirs_of(settings, watches)
        self._elector = self._make_elector()
        self._sharding = self._make_sharding()
        # Without shards every resource is covered by the same Lease.
        tenure = None if self._elector is None else self._elector.tenure
        self._gate = ShardGate(
            self._sharding, self._elector, {watch.gvk for watch in watches}, self._uid
        )
        self._fences = Fences(self._gate.tenure_of)
        self._with_conditions = {watch.gvk for watch in watches if watch.manage_status}
        self._expressions = ExpressionConditions(
            self._concerned, self._expression_changed, metrics.expression_failed
        )
        self._cluster = KubeCluster(self._api, self._discovery, self._fences)
        failures = FailedExpressions(
            self._emit,
            self._uid,
            self._expressions,
            count=metrics.expression_failed,
            owns=self._gate.owns,
        )
        self._failed_expressions = failures
        fields = ChosenFields(watches, failures.report, failures.recovered)
        self._dependents = Dependents(
            self._stream_dependents,
            self._enqueue,
            settings.namespaces,
            watches,
            fields=fields,
            enabled=settings.inject_owner_ref,
        )
        self._proxy = Proxy(
            connection,
            settings.proxy,
            RecordedWrites(self._dependents, self._runs),
            self._discovery,
            rundirs.shared,
            inject_owner_ref=settings.inject_owner_ref,
            anonymous=watches if settings.proxy_allow_anonymous else None,
            record=settings.record_requests,
            fences=self._fences,
            on_request=self._runs.on_request,
        )
        self._jobs: JobServing | None = None
        self._job_launcher = self._make_job_launcher()
        self._references = References(
            watches,
            referenced,
            self._enqueue,
            failures.report,
            fields,
            recovered=failures.recovered,
        )
        self._operator_condition = OperatorConditionReporter.of(
            self._api, connection.namespace, settings.operator_condition, tenure
        )
        self._annotated_periods = AnnotatedPeriods(self._enqueue_after)
        self._schedules = Schedules(watches, timetable, is_relevant, self._enqueue)
        self._primary = PrimaryWatcher(
            watches,
            is_relevant,
            self._enqueue,
            self._on_first_seen,
            self._on_change,
            deselected=is_deselected,
        )
        self._triggers = Triggers(
            watches,
            trigger_targets,
            self._primary.is_chosen,
            Sinks(self._enqueue, failures.report, self._trigger_handled, failures.recovered),
            fields,
        )
        self._shared_watches = SharedWatches(
            [*self._references.subscriptions(), *self._triggers.subscriptions()],
            self._streams.requested,
            settings.namespaces,
        )
        self._loop_throttle = LoopThrottle(
            self._dependents.writes.is_recent_echo, self._dependents.writes.has_written
        )
        self._backoff_handover = BackoffHandover(self._queue, self._loop_throttle)
        self._executor = AnsibleExecutor(
            launcher,
            rundirs,
            settings.ansible,
            settings.kubeconfig,
            self._job_launcher,
            ask=terminal.ask if settings.ansible.step else None,
        )
        self._inputs, self._archive = self._make_stores()
        self._run_files = RunFiles(self._executor)
        self._reconcilers = self._make_reconcilers(names, traces)
        self._dispatcher = Dispatcher(
            self._queue,
            self._reconcilers,
            self._metrics,
            self._loop_throttle,
            self._gone,
            reload=settings.reload,
            claim=self._claim,
            traces=traces,
        )
        self._conversions = ConversionService(
            settings.webhook, watches, self._api, self._discovery, metrics
        )

    def _make_reconcilers(
        self, names: ReservedNamesLoader, traces: Traces
    ) -> dict[GVK, Reconciler]:
        settings = self._settings
        variable_names = variable_names_of(settings, names)
        self._runs.on_record(traces.run_ended)
        self._runs.on_record(self._run_files.write)
        previewer = Previewer(self._proxy, self._executor, variable_names, settings.ansible)
        dependencies = Dependencies(
            cluster=self._cluster,
            access=OwnedAccess(self._proxy, self._dependents, self._inputs),
            executor=self._executor,
            is_relevant=is_relevant,
            is_deselected=is_deselected,
            latest_version=self._primary.version,
            on_task_end=self._metrics.task_finished,
            run_guard=self._operator_condition.guard,
            on_replaced=self._replaced,
            variable_names=variable_names,
            writes=self._dependents.writes,
            on_idempotence=self._metrics.record_idempotence,
            other_writers=OtherWriters(lambda: datetime.now(UTC), settings.graceful_shutdown),
            timetable=timetable,
            on_missed_tick=self._metrics.tick_missed,
            on_suspension=self._metrics.record_suspension,
            preview=previewer.preview,
            on_drift=self._metrics.record_drift,
            dependents=self._dependents.objects.of,
            expressions=self._expressions,
            fences=self._fences,
            claim=(lambda _: True) if self._sharding is None else self._sharding.claim,
            records=self._runs,
            inputs=self._inputs,
            run_environment=traces.run_environment,
        )
        for watch in self._watches:
            self._metrics.watching(watch.gvk, settings.concurrency.limit(watch.gvk))
        return {
            watch.gvk: Reconciler(watch, dependencies, settings.ansible, settings.reconcile_period)
            for watch in self._watches
        }

    def _make_job_launcher(self) -> JobLauncher | None:
        """Return the launcher of Jobs, with a server for their Pods; None if no watch has Jobs."""
        if all(watch.job is None for watch in self._watches):
            return None
        settings = self._settings.jobs
        host, namespace, secret = _names_for_jobs(settings, self._connection.namespace)
        source = SecretCertificates(self._api, namespace, secret, CertificateLifetimes())
        server = JobServer(self._proxy, source, settings.port, host)

        def client(namespace: str) -> JobClient:
            return JobClient(self._api, namespace or self._connection.namespace)

        def on_adopted(ref: ObjectRef) -> None:
            self._enqueue(ref, Cause(Trigger.START, "end of an adopted run"))

        launcher = JobLauncher(
            server, client, self._settings.ansible, self._fences, on_adopted=on_adopted
        )
        self._jobs = JobServing(server, launcher, self._watches)
        return launcher

    def _make_stores(self) -> tuple[UnchangedInputs, RunArchive | None]:
        """Return the inputs of runs, and where they and the runs are kept for a new Pod."""
        inputs = UnchangedInputs(
            self._api,
            self._discovery,
            content_reader_of(self._settings.ansible),
            partial(installation_of, self._settings.ansible),
            self._dependents,
        )
        archive = self._make_archive(inputs)
        if archive is not None:
            changed = partial(archive.finished, has_changes=True)
            inputs.use_archive(archive.loaded, changed)
        return inputs, archive

    def _make_archive(self, inputs: UnchangedInputs) -> RunArchive | None:
        """Return where runs are kept for a new Pod: beside the Lease, if there is one."""
        election = self._settings.leader_election
        if not (self._settings.keep_runs and election.enabled) or self._settings.once is not None:
            return None
        namespace = election.namespace or self._connection.namespace
        # With shards, no other replica writes the keys of the same resources.
        sole = self._elector if self._sharding is None else None
        tenure = None if sole is None else sole.tenure
        archive = RunArchive(
            self._api,
            namespace,
            election.lease_name,
            self._runs,
            lambda: Fence(tenure),
            inputs=inputs,
        )
        self._runs.on_finished(archive.finished)
        self._runs.on_deleted(archive.deleted)
        return archive

    def _make_elector(self) -> LeaderElector | None:
        election = self._settings.leader_election
        if not election.enabled:
            return None
        namespace = election.namespace or self._connection.namespace
        return LeaderElector(self._api, election, namespace)

    def _make_sharding(self) -> Sharding | None:
        shards, elector = self._settings.shards, self._elector
        if shards is None or elector is None:
            return None
        election, metrics = self._settings.leader_election, self._metrics
        metrics.shards.enable()
        namespace = election.namespace or self._connection.namespace
        return Sharding(
            elector,
            Membership(self._api, election, namespace, elector.identity),
            ShardLeases(self._api, self._discovery, election, namespace),
            limit=shards.limit,
            grace=self._settings.graceful_shutdown.total_seconds(),
            events=SlotEvents(
                self._on_gained,
                self._on_released,
                metrics.shards.count,
                partial(metrics.leading, election.lease_name),
            ),
        )

    async def serve(self, stack: AsyncExitStack) -> None:
        """Open the other ports; they are closed when `stack` is. Raises ConfigError."""
        self._stack = stack
        self._health.ready("watches", self._why_not_ready)
        view = RunningOperator(
            self._watches,
            self._settings.namespaces,
            lambda: self._leading,
            self._queue,
            self._schedules,
            self._dependents,
            self._executor.output,
        )
        api = RunsApi(self._runs, view)
        await open_metrics(
            self._settings, self._metrics, self._api, stack, runs=api, work_dir=self._rundirs.base
        )
        if self._settings.once is None:
            announce_servers(self._settings)
            await self._conversions.serve(stack, self._health)
        await self._proxy.start()
        stack.push_async_callback(self._proxy.stop)
        stack.push_async_callback(self._leave_jobs)
        stack.push_async_callback(self._run_files.finish)

    async def run(self, load: Callable[[], Sequence[Watch]]) -> int | None:
        """Lead, work until something ends that, and shut down in order; see `run` above."""
        log_types(self._watches)
        if self._settings.once is not None:
            return await self._reconcile_once(*self._settings.once)
        if not await self._acquire_lease():
            return 0
        self._leading = True
        working = [asyncio.create_task(part, name=name) for name, part in self._parts(load)]
        ended = await until_one_ends(working, self._stop)
        edited = ended is not None and ended.get_name() == _WATCHES_FILE and not ended.exception()
        if edited:
            ended = None
        await self._shut_down(working, ended)
        if edited and not self._stop.is_set():
            return None
        if ended is not None and isinstance(error := ended.exception(), ConfigError):
            raise error
        return 0 if ended is None else 1

    async def _acquire_lease(self) -> bool:
        """Wait until this replica may work; return False if it is to end before."""
        if self._elector is None:
            return True
        lease = self._settings.leader_election.lease_name
        self._metrics.leading(lease, False)
        if self._sharding is not None:
            acquire, release = self._sharding.join, self._sharding.leave
            _log.info("Joining shards", lease=lease)
        else:
            acquire, release = self._elector.acquire, self._elector.release
            _log.info("Waiting for leadership", lease=lease)
        acquiring = asyncio.create_task(acquire(), name="leader election")
        if await until_one_ends([acquiring], self._stop) is None:
            await end_tasks([acquiring])
            # A cancelled request may have won the Lease all the same.
            await release()
            return False
        self._metrics.leading(lease, self._sharding is None)
        return True

    async def _reconcile_once(self, kind: str, name: str) -> int:
        """Reconcile one resource; return 0 if its run succeeded, 1 if not, 130 if interrupted.

        Raises ConfigError for a kind that no watch has, and a first task that the role lacks.
        """
        namespaces = self._settings.namespaces
        key = await find_resource(
            kind,
            name,
            namespace=namespaces[0] if len(namespaces) == 1 else self._connection.namespace,
            watches=self._watches,
            discovery=self._discovery,
            cluster=self._cluster,
        )
        if self._settings.ansible.start_at_task:
            body = await self._cluster.get(key)
            content = content_of(key, body, self._watches)
            if content is not None:
                await check_first_task(content, self._settings.ansible)
        cause = Cause(Trigger.START, "--once")
        if self._jobs is not None:
            opening = asyncio.create_task(self._jobs.open(), name="Jobs")
            if await until_one_ends([opening], self._stop) is None:
                await end_tasks([opening])
                return 128 + signal.SIGINT
            opening.result()
        working = asyncio.create_task(self._dispatcher.reconcile_once(key, cause))
        interrupted = await until_one_ends([working], self._stop) is None
        await end_tasks([working] if interrupted else [])
        await self._dependents.stop()
        return 128 + signal.SIGINT if interrupted else exit_status(key, working.result())

    async def reconcile(self, key: ObjectRef, uid: str) -> tuple[ReconcileResult, Json | None]:
        """Reconcile the resource with this uid as `--once` does; return the record of its run too.

        None if nothing was run. Failures are reported as those of any reconcile.
        """
        known = [each["id"] for each in self._runs.last(key, uid, 1)]
        result = await self._dispatcher.reconcile_once(key, Cause(Trigger.START, "on request"))
        records = self._runs.last(key, uid, 1)
        return result, next((each for each in records if each["id"] not in known), None)

    async def stop_watching(self) -> None:
        """End the watches of dependents that reconciles on request have begun."""
        await self._dependents.stop()

    def _parts(
        self, load: Callable[[], Sequence[Watch]]
    ) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """Yield the tasks that run as long as the operator, with their names.

        The task of the watches file ends when it was edited.
        """
        yield "dispatcher", self._dispatcher.run()
        yield "loading of Ansible", self._launcher.failed()
        yield "discovery of kinds", self._kinds.run()
        yield "watching", self._watch_primaries()
        yield "readiness", log_readiness(self._watch_readiness)
        yield "watching references and triggers", self._shared_watches.run()
        yield "failed expressions", self._failed_expressions.run()
        yield "schedules", self._schedules.run()
        yield "OperatorCondition", self._operator_condition.run()
        if self._jobs is not None:
            yield "Jobs", self._jobs.run()
        if self._archive is not None:
            yield "archive of runs", self._archive.run()
        if self._sharding is not None:
            yield "shards", self._sharding.run()
            yield "coordination of shards", self._sharding.coordinate()
            yield "membership of shards", self._sharding.lost()
        elif self._elector is not None:
            yield "leadership", self._elector.lost()
        if self._settings.reload:
            yield "project", self._project_watcher().run()
            file = WatchesFile(self._settings.watches_file, self._watches, load)
            yield _WATCHES_FILE, file.wait_edited()

    def _project_watcher(self) -> ProjectWatcher:
        return ProjectWatcher(
            self._watches,
            self._primary.known,
            lambda: tuple(self._dispatcher.awaiting_edit),
            self._enqueue,
        )

    async def _shut_down(
        self, working: Sequence[asyncio.Task[None]], ended: asyncio.Task[None] | None
    ) -> None:
        """No new runs; running ones get their time, unless another replica may lead by now."""
        lost = ended is not None and ended.get_name() in {"leadership", "membership of shards"}
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
            await self._leave_jobs()
        keep = {"leadership", "dispatcher", "shards", "membership of shards"}
        await end_tasks([task for task in working if task.get_name() not in keep])
        if self._sharding is not None and not lost:
            # Slots without runs are free for other replicas at once.
            self._sharding.start_leaving()
            await self._sharding.stop_coordinating()
        grace = 0.0 if lost else self._settings.graceful_shutdown.total_seconds()
        await self._dispatcher.drain(grace, self._leave_jobs)
        await self._dependents.stop()
        await end_tasks(working)
        try:
            if not lost:
                await self._operator_condition.report_idle()
                if self._archive is not None:
                    await self._archive.stop()
        finally:
            await self._leave()

    async def _leave(self) -> None:
        """Release the Lease, or those of the shards."""
        if self._elector is not None:
            # Unsent writes of cancelled runs must not arrive beside those of a successor.
            self._connection.abort()
            await (self._elector.release if self._sharding is None else self._sharding.leave)()

    async def _leave_jobs(self) -> None:
        if self._jobs is not None:
            await self._jobs.leave()

    async def _watch_primaries(self) -> None:
        # What these lists show leads to no run, so the runs at start must come later.
        await self._shared_watches.wait_listed()
        await self._enqueue_adoptions()

        def watch(kinds: Sequence[ApiResource]) -> Coroutine[Any, Any, None]:
            signals = functools.partial(take_signals, self._stop)
            return self._primary.run(self._connection, kinds, self._settings.namespaces, signals)

        await watch_kinds_forever(watch, self._kinds)

    async def _enqueue_adoptions(self) -> None:
        """Reconcile resources with running Jobs before all others: their plays wait for it."""
        namespaces = self._settings.namespaces
        for ref in () if self._jobs is None else await self._jobs.adoptable():
            if not namespaces or not ref.namespace or ref.namespace in namespaces:
                self._enqueue(ref, Cause(Trigger.START, "running Job"))

    def _stream_dependents(self, gvk: GVK, namespace: str | None) -> AsyncIterator[MetadataEvent]:
        return self._streams.dependents(gvk, namespace, self._dependents.extraction)

    def _enqueue(self, ref: ObjectRef, cause: Cause) -> None:
        if self._gate.is_mine(ref):
            self._queue.add(ref, cause)
            self._metrics.queue_added(ref.gvk)

    def _enqueue_after(self, ref: ObjectRef, cause: Cause, seconds: float) -> None:
        if self._gate.is_mine(ref):
            self._queue.add_after(ref, cause, seconds)

    # Shards --------------------------------------------------------------------------

    async def _emit(self, body: Json, event: EventSpec) -> None:
        """Emit an Event; one replica does if all of them have noticed what it is about."""
        if self._gate.owns(uid_of(body)):
            await self._cluster.emit(body, event)

    def _claim(self, ref: ObjectRef) -> bool:
        """Return whether the current task may reconcile a resource, see `ShardGate.claim`."""
        is_claimed = self._gate.claim(ref)
        if is_claimed:
            self._backoff_handover.restore(ref, self._uid(ref))
        return is_claimed

    def _on_gained(self, slots: frozenset[int], states: Mapping[str, BackoffState]) -> None:
        self._backoff_handover.gained(states)
        self._failed_expressions.gained(slots)
        for ref, uid, created in self._primary.existing():
            if slot_of(uid) in slots:
                self._metrics.resource_seen(ref, created)
        self._metrics.shards.gained(len(slots))
        for ref, uid in self._primary.chosen():
            if slot_of(uid) in slots:
                self._enqueue(ref, Cause(Trigger.START, "slot gained"))

    def _on_released(self, slots: frozenset[int]) -> Mapping[str, BackoffState]:
        """Forget what is known about resources; if they return, others have run them."""
        self._metrics.shards.released(len(slots))
        found = [(ref, uid) for ref, uid in self._primary.chosen() if slot_of(uid) in slots]
        states = self._backoff_handover.released(slots, found)
        refs = [ref for ref, _ in found]
        for ref in refs:
            self._queue.remove(ref)
            self._dispatcher.awaiting_edit.discard(ref)
            self._loop_throttle.forget(ref)
            self._reconcilers[ref.gvk].release(ref)
            self._metrics.record_result(ref, failed=False)
            self._metrics.record_idempotence(ref, True)
            self._metrics.record_suspension(ref, False)
            self._metrics.record_drift(ref, False)
        self._dependents.forget(*refs)
        for ref, uid, _ in self._primary.existing():
            if slot_of(uid) in slots:
                self._metrics.resource_gone(ref)
        return states

    def _trigger_handled(self, gvk: GVK, object_gvk: GVK, uid: str, resources: int) -> None:
        """Count an event of a trigger object; the owner of its slot does."""
        if self._gate.owns(uid):
            self._metrics.trigger_handled(gvk, object_gvk, resources)

    # ---------------------------------------------------------------------------------

    def _on_first_seen(self, ref: ObjectRef, body: Json) -> None:
        if self._gate.owns(uid_of(body)):
            created = datetime.fromisoformat(body["metadata"]["creationTimestamp"])
            self._metrics.resource_seen(ref, created.timestamp())
        else:
            # Another one of this name, which was deleted, may have been in a slot of this replica.
            self._metrics.resource_gone(ref)

    def _on_change(self, ref: ObjectRef, body: Json | None) -> None:
        self._references.on_change(ref, body)
        self._schedules.on_change(ref, body)
        self._annotated_periods.on_change(ref, body)
        self._triggers.on_change(ref, body)

    def _uid(self, ref: ObjectRef) -> str:
        return self._primary.uid(ref)

    def _concerned(self, ref: ObjectRef) -> Collection[ObjectRef]:
        """Return the resources that own an object or refer to it."""
        return self._dependents.owners(ref) | self._references.referring(ref)

    def _expression_changed(self, resource: ObjectRef, key: str, what: str) -> None:
        """Have the end of a run write the condition of a resource; others have none."""
        if resource.gvk in self._with_conditions and self._primary.is_chosen(resource):
            self._enqueue(resource, Cause(_TRIGGERS[key.partition("[")[0]], f"{key} {what}"))

    def _gone(self, ref: ObjectRef) -> None:
        self._dependents.forget(ref)
        self._metrics.record_idempotence(ref, True)
        if not self._primary.uid(ref):
            # Otherwise another resource of the same name is there, or the event is to come.
            self._metrics.resource_gone(ref)

    def _replaced(self, ref: ObjectRef) -> None:
        """Forget what is known by name of a resource that is gone; another one has its name."""
        self._queue.forget(ref)
        self._loop_throttle.forget(ref)
        self._dependents.forget(ref)
        self._metrics.record_result(ref, failed=False)
        self._metrics.record_idempotence(ref, True)

    def _why_not_ready(self) -> str | None:
        if self._stop.is_set():
            return "shutting down"
        if (fault := self._launcher.fault) is not None:
            return fault
        # A replica that waits for its turn does its duty; were it not ready, a rolling
        # update would wait for it for ever, while the old leader still holds the lease.
        return self._watch_readiness.not_ready_reason() if self._leading else None


def _names_for_jobs(settings: JobSettings, own_namespace: str) -> tuple[Address, str, str]:
    """Return where Pods connect to, and namespace and name of the Secret with the certificates."""
    if settings.service is None:
        return Address(settings.host, 0), own_namespace, "operator-runner-jobs-certificate"
    namespace, name, port = settings.service
    namespace = namespace or own_namespace
    return Address(f"{name}.{namespace}.svc", port), namespace, f"{name}-certificate"
