"""Metrics of the operator, on a registry of their own.

The families come first: names, help texts, labels and buckets. Names of `ansible_operator_*` are
ansible-operator's, `controller_runtime_*`, `workqueue_*` and `leader_election_*`
controller-runtime's, so that dashboards and alerts continue to work. No label holds an object's
name, except for `resource_created_at_seconds`, as in ansible-operator; its series is deleted with
the object.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypeAlias, get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    Metric,
    ProcessCollector,
    Summary,
)
from prometheus_client.core import CounterMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from operator_runner.core.model import GVK, Cause, ObjectRef, Trigger
from operator_runner.core.resource_states import ResourceState
from operator_runner.core.settings import ServerStart
from operator_runner.telemetry.output_thread import dropped_records
from operator_runner.telemetry.usermetrics import UserMetrics


class FamilyMaker:
    """Makes the families of one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Each method takes name, help and label names."""
        self.counter = partial(Counter, registry=registry)
        self.gauge = partial(Gauge, registry=registry)
        self.histogram = partial(Histogram, registry=registry)
        self.summary = partial(Summary, registry=registry)


class ShardMetrics:
    """The slots of this replica; without shards there are no series."""

    def __init__(self, make: FamilyMaker) -> None:
        """Prepare; the families are made by `enable`."""
        self._make = make

    def enable(self) -> None:
        """Make the families, with series of value 0."""
        self._slots = self._make.gauge(
            "operator_runner_shard_slots",
            "Slots of this replica: active ones, and ones that it drains before they move",
            ("state",),
        )
        self._epoch = self._make.gauge(
            "operator_runner_shard_epoch",
            "Epoch of the assignment of slots that this replica follows",
        )
        self._moved = self._make.counter(
            "operator_runner_shard_moves_total",
            "Slots that this replica has gained and released",
            ("direction",),
        )
        self.count(0, 0, 0)
        for direction in ("gained", "released"):
            self._moved.labels(direction)

    def count(self, active: int, draining: int, epoch: int) -> None:
        """Set the numbers of slots, and the epoch."""
        self._slots.labels("active").set(active)
        self._slots.labels("draining").set(draining)
        self._epoch.set(epoch)

    def gained(self, slots: int) -> None:
        """Count slots that this replica begins to work on."""
        self._moved.labels("gained").inc(slots)

    def released(self, slots: int) -> None:
        """Count slots that another replica may work on."""
        self._moved.labels("released").inc(slots)


_REVIEW_RESULTS = ("success", "failure")


class ConversionMetrics:
    """The families of the webhook; their series exist from the start."""

    def __init__(self, make: FamilyMaker) -> None:
        """Make the families."""
        self._reviews = make.counter(
            "operator_runner_conversion_reviews_total",
            "Requests of the API server to the conversion webhook, by result",
            ("result",),
        )
        self._objects = make.counter(
            "operator_runner_converted_objects_total",
            "Objects that the conversion webhook has given to the API server",
        )
        for result in _REVIEW_RESULTS:
            self._reviews.labels(result)

    def count(self, result: str, objects: int) -> None:
        """Count a request; `result` is success or failure, `objects` those that were given."""
        self._reviews.labels(result).inc()
        self._objects.inc(objects)


_DROPPED = "operator_runner_log_records_dropped"
_DROPPED_HELP = (
    "Log lines and pieces of output that were not written, because they were not read in time"
)


class DroppedRecords(Collector):
    """Reads the number at each scrape, as `ProcessCollector` does for the process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register it."""
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """Return the family with its one sample."""
        family = CounterMetricFamily(_DROPPED, _DROPPED_HELP)
        family.add_metric([], dropped_records())
        yield family


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class ApiRequests:
    """The family `rest_client_requests_total`."""

    def __init__(self, make: FamilyMaker) -> None:
        """Make the family; its series come with the first request of each kind."""
        self._total = make.counter(
            "rest_client_requests_total",
            "Number of HTTP requests, partitioned by status code, method, and host.",
            ("code", "method", "host"),
        )

    def count(self, status: int | None, method: str, host: str) -> None:
        """Count a request; `status` is None if there was no response."""
        code = "<error>" if status is None else str(status)
        # Plays choose the method: a label must not take whatever they make up.
        self._total.labels(code, method if method in _METHODS else "OTHER", host).inc()


# ansible-operator has prometheus' default buckets, which end at 10 s; plays take longer.
_DEFAULT = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
_PLAY = (*_DEFAULT, 20, 30, 60, 120, 300, 600, 1800)
_RECONCILE = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8),
    *(0.9, 1, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50),
    *(60, 120, 300, 600),
)
_QUEUE = tuple(10.0**exponent for exponent in range(-8, 4))

_QUEUE_LABELS = ("name", "controller")
"""controller-runtime gives both the same value."""

_OBJECT = ("group", "version", "kind")
_RUN = (*_OBJECT, "trigger", "outcome")


class AnsibleFamilies:
    """The families that ansible-operator exports itself."""

    def __init__(self, make: FamilyMaker) -> None:
        self.build_info = make.gauge(
            "ansible_operator_build_info",
            "Build information of the operator; always 1",
            ("commit", "version"),
        )
        self.reconcile_result = make.gauge(
            "ansible_operator_reconcile_result",
            "1 for the result of the last run of this kind, 0 for the other one",
            ("GVK", "result"),
        )
        self.reconciles = make.histogram(
            "ansible_operator_reconciles",
            "Seconds from the start to the end of a run",
            ("GVK",),
            buckets=_PLAY,
        )
        self.created_at = make.gauge(
            "resource_created_at_seconds",
            "Time of creation of a watched resource, in seconds since the epoch",
            ("name", "namespace", *_OBJECT),
        )


class ControllerFamilies:
    """The families that controller-runtime exports for each controller; here one a watched kind."""

    def __init__(self, make: FamilyMaker) -> None:
        self.total = make.counter(
            "controller_runtime_reconcile_total",
            "Total number of reconciliations per controller",
            ("controller", "result"),
        )
        self.all = make.counter("reconciles_total", "Number of total reconciliation attempts")
        self.errors = make.counter(
            "controller_runtime_reconcile_errors_total",
            "Total number of reconciliation errors per controller",
            ("controller",),
        )
        self.time = make.histogram(
            "controller_runtime_reconcile_time_seconds",
            "Length of time per reconciliation per controller",
            ("controller",),
            buckets=_RECONCILE,
        )
        self.active = make.gauge(
            "controller_runtime_active_workers",
            "Number of running reconciliations per controller",
            ("controller",),
        )
        self.max_concurrent = make.gauge(
            "controller_runtime_max_concurrent_reconciles",
            "Maximum number of concurrent reconciliations per controller",
            ("controller",),
        )
        self.leading = make.gauge(
            "leader_election_master_status",
            "1 if this process is the leader of the lease, 0 if it is not",
            ("name",),
        )


class QueueFamilies:
    """The families that client-go exports for each workqueue; here one a watched kind."""

    def __init__(self, make: FamilyMaker) -> None:
        self.depth = make.gauge(
            "workqueue_depth",
            "Number of keys that wait for a worker",
            # controller-runtime leaves `priority` empty for a queue that is not sorted by numbers.
            (*_QUEUE_LABELS, "priority"),
        )
        self.adds = make.counter(
            "workqueue_adds_total", "Total number of adds handled by the workqueue", _QUEUE_LABELS
        )
        self.waited = make.histogram(
            "workqueue_queue_duration_seconds",
            "Seconds that a key was due in the workqueue before a worker took it",
            _QUEUE_LABELS,
            buckets=_QUEUE,
        )
        self.worked = make.histogram(
            "workqueue_work_duration_seconds",
            "Seconds that a worker held a key",
            _QUEUE_LABELS,
            buckets=_QUEUE,
        )
        self.retries = make.counter(
            "workqueue_retries_total",
            "Total number of retries handled by the workqueue",
            _QUEUE_LABELS,
        )
        self.unfinished = make.gauge(
            "workqueue_unfinished_work_seconds",
            "Sum of the ages of all running reconciliations; a steady rise shows a stuck one",
            _QUEUE_LABELS,
        )
        self.longest = make.gauge(
            "workqueue_longest_running_processor_seconds",
            "Age of the oldest running reconciliation",
            _QUEUE_LABELS,
        )


class RunFamilies:
    """Runs of roles and playbooks, by the kind of the resource."""

    def __init__(self, make: FamilyMaker) -> None:
        self.total = make.counter(
            "operator_runner_runs_total",
            "Runs of a role or playbook by the first cause and the outcome",
            _RUN,
        )
        self.causes = make.counter(
            "operator_runner_run_causes_total",
            "Kinds of causes that were coalesced into runs; a run counts once for each of its own",
            _RUN,
        )
        self.duration = make.histogram(
            "operator_runner_run_duration_seconds",
            "Seconds from the start to the end of a run, by the first cause and the outcome",
            _RUN,
            buckets=_PLAY,
        )
        self.queue_duration = make.histogram(
            "operator_runner_queue_duration_seconds",
            "Seconds from when a run was due to its start, by the first cause and the outcome",
            _RUN,
            buckets=_PLAY,
        )
        self.task_duration = make.summary(
            "operator_runner_task_duration_seconds",
            "Seconds that tasks took, by name and action; names beyond a hundred count as `other`",
            (*_OBJECT, "task", "action"),
        )
        self.timeouts = make.counter(
            "operator_runner_run_timeouts_total", "Runs that were ended at their deadline", _OBJECT
        )
        self.throttled = make.counter(
            "operator_runner_reconcile_loops_throttled_total",
            "Runs that were delayed because their resource keeps triggering itself",
            _OBJECT,
        )
        self.missed = make.counter(
            "operator_runner_missed_schedules_total",
            "Ticks of schedules that did not run because they were older than their deadline",
            _OBJECT,
        )
        self.pruned = make.counter(
            "operator_runner_pruned_objects_total",
            "Objects that were deleted because the runs of their resource no longer write them",
            _OBJECT,
        )


class ResourceFamilies:
    """Numbers of resources in a state, by kind."""

    def __init__(self, make: FamilyMaker) -> None:
        self.failing = make.gauge(
            "operator_runner_failing_resources", "Resources whose last reconcile failed", _OBJECT
        )
        self.not_idempotent = make.gauge(
            "operator_runner_not_idempotent_resources",
            "Resources whose role changes the same field in every run, though nothing asked for it",
            _OBJECT,
        )
        self.suspended = make.gauge(
            "operator_runner_suspended_resources",
            "Resources that an annotation suspends, so that nothing runs for them",
            _OBJECT,
        )
        self.drifted = make.gauge(
            "operator_runner_drifted_resources",
            "Resources with `drift: warn` whose objects differ from what they ask for",
            _OBJECT,
        )
        self.oldest_failure_age = make.gauge(
            "operator_runner_oldest_failure_age_seconds",
            "Seconds since the first of the failing resources began to fail; 0 if none fails",
            _OBJECT,
        )


class EventFamilies:
    """Events of objects other than the resource, and failures of expressions."""

    def __init__(self, make: FamilyMaker) -> None:
        self.trigger_events = make.counter(
            "operator_runner_trigger_events_total",
            "Events of trigger objects that concerned resources, by the kind of the object",
            (*_OBJECT, "object_kind"),
        )
        self.expression_failures = make.counter(
            "operator_runner_expression_failures_total",
            "Objects for which an expression of watches.yaml failed, by the key of the expression",
            (*_OBJECT, "key"),
        )


class MachineFamilies:
    """Cores and memory that runs share, measured at each scrape."""

    def __init__(self, make: FamilyMaker) -> None:
        self.free_memory = make.gauge(
            "operator_runner_free_memory_bytes",
            "Memory that is left for further runs, by the limit of the container or the machine",
        )
        self.fork_servers = make.counter(
            "operator_runner_fork_server_starts_total",
            "Starts of the process that warm runs are forked from, by reason",
            ("reason",),
        )
        for reason in get_args(ServerStart):
            self.fork_servers.labels(reason)  # Prometheus sees no increase from no series


Result: TypeAlias = Literal["success", "error", "requeue", "requeue_after"]
"""Result of a reconcile, in controller-runtime's words."""
Outcome: TypeAlias = Literal["succeeded", "failed", "superseded"]
"""Result of a run."""

_RESULTS: tuple[Result, ...] = ("success", "error", "requeue", "requeue_after")
_OUTCOMES: tuple[Outcome, ...] = ("succeeded", "failed")
_SUPERSEDED: Outcome = "superseded"
_TASKS = 100
"""Task names of one kind that have series of their own: names may be templates."""
_OTHER = "other"


@dataclass(slots=True)
class _Watched:
    """Label of a watched kind, and the start times of its active reconciles and runs."""

    controller: str
    started: list[float] = field(default_factory=list)
    tasks: set[tuple[str, str]] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class RunTimes:
    """Seconds that a run waited for its turn, and that it took from its start to its end.

    `exemplar` are the ids of its trace, None if it has none.
    """

    waited: float
    ran: float
    exemplar: Mapping[str, str] | None = None


class Metrics:
    """All series of one operator process.

    Call `watching` first for each kind: it creates the kind's series with the value 0, so that
    `rate()` counts the first event too. `clock` returns monotonic seconds.
    """

    def __init__(
        self, version: str, commit: str = "unknown", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._registry = CollectorRegistry()
        make = FamilyMaker(self._registry)
        self._ansible = AnsibleFamilies(make)
        self._controller = ControllerFamilies(make)
        self._queue = QueueFamilies(make)
        self._runs = RunFamilies(make)
        self._resources = ResourceFamilies(make)
        self._events = EventFamilies(make)
        self.machine = MachineFamilies(make)
        self.api_requests = ApiRequests(make)
        self.conversions = ConversionMetrics(make)
        self.shards = ShardMetrics(make)
        self._watched: dict[GVK, _Watched] = {}
        self._states: Iterable[ResourceState] = ()
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)
        DroppedRecords(self._registry)
        # Last, so that no name of the operator's own can be taken.
        self.user = UserMetrics(self._registry)
        self._ansible.build_info.labels(commit, version).set(1)

    def watching(self, gvk: GVK, max_concurrent: int) -> None:
        """Make the series of a kind; `max_concurrent` is the number of its workers."""
        name = self._controller_name(gvk)
        self._watched[gvk] = _Watched(name)
        controller, queue, runs = self._controller, self._queue, self._runs
        for of_controller in (controller.active, controller.errors, controller.time):
            of_controller.labels(name)
        controller.max_concurrent.labels(name).set(max_concurrent)
        for result in _RESULTS:
            controller.total.labels(name, result)
        durations = (queue.waited, queue.worked, queue.unfinished, queue.longest)
        for of_queue in (queue.adds, queue.retries, *durations):
            of_queue.labels(name, name)
        queue.depth.labels(name, name, "")
        self._ansible.reconciles.labels(str(gvk))
        for outcome in _OUTCOMES:
            self._ansible.reconcile_result.labels(str(gvk), outcome)
        for of_kind in (runs.throttled, runs.timeouts, runs.missed, runs.pruned):
            of_kind.labels(*_of(gvk))
        for outcome in (*_OUTCOMES, _SUPERSEDED):
            for trigger in Trigger:
                self._runs.total.labels(*_of(gvk), trigger.value, outcome)
                self._runs.causes.labels(*_of(gvk), trigger.value, outcome)

    def resource_seen(self, ref: ObjectRef, created: float) -> None:
        """Note a watched resource; `created` is its creationTimestamp in seconds."""
        series = self._ansible.created_at.labels(ref.name, ref.namespace, *_of(ref.gvk))
        series.set(created)

    def measure_resources(self, states: Iterable[ResourceState]) -> None:
        """Count at each scrape how many of `states` fail, are suspended, and so on."""
        self._states = states

    def record_result(self, state: ResourceState, *, failed: bool) -> None:
        """Record whether the last reconcile of a resource failed."""
        if not failed:
            state.failing_since = None
        elif state.failing_since is None:
            state.failing_since = self._clock()

    def objects_pruned(self, gvk: GVK, count: int) -> None:
        """Count objects that were deleted because the runs of a resource no longer write them."""
        self._runs.pruned.labels(*_of(gvk)).inc(count)

    def resource_gone(self, ref: ObjectRef) -> None:
        """End the series of a resource that was deleted, or that another replica runs."""
        self._ansible.created_at.remove(ref.name, ref.namespace, *_of(ref.gvk))
        self.user.forget(ref.namespace, ref.name)

    def reconcile_started(self, gvk: GVK) -> None:
        """Note that a worker begins to reconcile a resource of this kind."""
        watched = self._watched[gvk]
        watched.started.append(self._clock())
        self._controller.active.labels(watched.controller).inc()

    def reconcile_finished(
        self, gvk: GVK, result: Result, seconds: float, exemplar: Mapping[str, str] | None = None
    ) -> None:
        """Note the end of the reconcile that began `seconds` ago.

        `exemplar` are the ids of its trace. OpenMetrics has exemplars, the text format has not.
        """
        watched = self._watched[gvk]
        # Reconciles of a kind are identified by their age only.
        begin = self._clock() - seconds
        watched.started.remove(min(watched.started, key=lambda start: abs(start - begin)))
        self._controller.active.labels(watched.controller).dec()
        self._controller.time.labels(watched.controller).observe(seconds, _labels(exemplar))
        # `reconciles_total` has to equal the sum of this counter, so both are counted here.
        self._controller.total.labels(watched.controller, result).inc()
        self._controller.all.inc()
        if result == "error":
            self._controller.errors.labels(watched.controller).inc()

    def run_finished(
        self, gvk: GVK, causes: Sequence[Cause], outcome: Outcome, times: RunTimes
    ) -> None:
        """Record the end of a play with its causes, of which there is at least one.

        A superseded play does not count as a result of the kind.
        """
        first = (*_of(gvk), causes[0].trigger.value, outcome)
        self._runs.total.labels(*first).inc()
        exemplar = _labels(times.exemplar)
        self._runs.duration.labels(*first).observe(times.ran, exemplar)
        self._runs.queue_duration.labels(*first).observe(times.waited, exemplar)
        for trigger in {cause.trigger for cause in causes}:
            self._runs.causes.labels(*_of(gvk), trigger.value, outcome).inc()
        if outcome == _SUPERSEDED:
            return
        self._ansible.reconciles.labels(str(gvk)).observe(times.ran, exemplar)
        for each in _OUTCOMES:
            self._ansible.reconcile_result.labels(str(gvk), each).set(each == outcome)

    def task_finished(self, gvk: GVK, name: str, action: str, seconds: float) -> None:
        """Note the end of a task of a play."""
        known = self._watched[gvk].tasks
        if (name, action) not in known and len(known) >= _TASKS:
            name = action = _OTHER
        else:
            known.add((name, action))
        self._runs.task_duration.labels(*_of(gvk), name, action).observe(seconds)

    def run_timed_out(self, gvk: GVK) -> None:
        """Count a run that was ended at its deadline."""
        self._runs.timeouts.labels(*_of(gvk)).inc()

    def trigger_handled(self, gvk: GVK, object_gvk: GVK, resources: int) -> None:
        """Count an event of a trigger object that concerned so many resources of a kind."""
        counter = self._events.trigger_events.labels(*_of(gvk), object_gvk.kind_and_group)
        counter.inc(1 if resources else 0)

    def expression_failed(self, gvk: GVK, key: str) -> None:
        """Count an object for which an expression of the watch of a kind failed."""
        self._events.expression_failures.labels(*_of(gvk), key).inc()

    def run_throttled(self, gvk: GVK) -> None:
        """Count a run that is delayed because its resource keeps triggering itself."""
        self._runs.throttled.labels(*_of(gvk)).inc()

    def tick_missed(self, gvk: GVK) -> None:
        """Count a tick that did not run because it was older than its deadline."""
        self._runs.missed.labels(*_of(gvk)).inc()

    def queue_added(self, gvk: GVK) -> None:
        """Count a key of this kind that is added to the workqueue, or added again."""
        self._queue.adds.labels(*self._queue_of(gvk)).inc()

    def measure_queue(self, gvk: GVK, depth: Callable[[], int]) -> None:
        """Ask `depth` at each scrape how many keys of this kind wait for a worker."""
        self._queue.depth.labels(*self._queue_of(gvk), "").set_function(depth)

    def queue_waited(self, gvk: GVK, seconds: float) -> None:
        """Note that a worker takes a key, `seconds` after it became due."""
        self._queue.waited.labels(*self._queue_of(gvk)).observe(seconds)

    def queue_worked(self, gvk: GVK, seconds: float) -> None:
        """Note that a worker is done with a key that it held for `seconds`."""
        self._queue.worked.labels(*self._queue_of(gvk)).observe(seconds)

    def queue_retried(self, gvk: GVK) -> None:
        """Count a key that is put back with a backoff delay."""
        self._queue.retries.labels(*self._queue_of(gvk)).inc()

    def leading(self, name: str, leads: bool) -> None:
        """Note whether this process holds the Lease `name` now."""
        self._controller.leading.labels(name).set(leads)

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """Return all series in the format of the Accept header, and the content type."""
        self._measure_work_under_way()
        self._measure_states()
        encode, content_type = choose_encoder(accept)
        body = encode(_WithoutCreated(self._registry))
        is_openmetrics = content_type.startswith("application/openmetrics-text")
        return body if is_openmetrics else self.user.typed(body), content_type

    def _measure_work_under_way(self) -> None:
        now = self._clock()
        for watched in self._watched.values():
            ages = [now - start for start in watched.started]
            name = watched.controller
            self._queue.unfinished.labels(name, name).set(sum(ages))
            self._queue.longest.labels(name, name).set(max(ages, default=0))

    def _measure_states(self) -> None:
        by_kind: dict[GVK, list[ResourceState]] = {gvk: [] for gvk in self._watched}
        for state in self._states:
            by_kind[state.ref.gvk].append(state)
        families, now = self._resources, self._clock()
        for gvk, found in by_kind.items():
            labels = _of(gvk)
            failures = [each.failing_since for each in found if each.failing_since is not None]
            families.failing.labels(*labels).set(len(failures))
            families.oldest_failure_age.labels(*labels).set(now - min(failures, default=now))
            idempotent = sum(each.is_idempotent for each in found)
            families.not_idempotent.labels(*labels).set(len(found) - idempotent)
            families.suspended.labels(*labels).set(sum(each.is_suspended for each in found))
            families.drifted.labels(*labels).set(sum(each.is_drifted for each in found))

    def _queue_of(self, gvk: GVK) -> tuple[str, str]:
        name = self._watched[gvk].controller
        return name, name

    def _controller_name(self, gvk: GVK) -> str:
        """Name the controller as ansible-operator does; it refuses same kinds of two groups."""
        name = f"{gvk.kind}-{gvk.version}-controller".lower()
        taken = {watched.controller for other, watched in self._watched.items() if other != gvk}
        return f"{gvk.kind}-{gvk.version}-{gvk.group}-controller".lower() if name in taken else name


class _WithoutCreated:
    """A view of a registry without the `_created` series, which double the number of series.

    prometheus_client has only a process-wide switch for them.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterable[Metric]:
        """Return the families, less the samples of creation times."""
        for metric in self._registry.collect():
            metric.samples = [s for s in metric.samples if s.name != f"{metric.name}_created"]
            yield metric


def _labels(exemplar: Mapping[str, str] | None) -> dict[str, str] | None:
    return None if exemplar is None else {**exemplar}


def _of(gvk: GVK) -> tuple[str, str, str]:
    return gvk.group, gvk.version, gvk.kind
