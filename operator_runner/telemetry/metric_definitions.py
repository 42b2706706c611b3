"""The metric families: names, help texts, labels and buckets. No values are set here.

Names of `ansible_operator_*` are ansible-operator's, `controller_runtime_*`, `workqueue_*` and
`leader_election_*` controller-runtime's, so that dashboards and alerts continue to work.
No label holds an object's name, except for `resource_created_at_seconds`, as in ansible-operator;
its series is deleted with the object.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, Summary
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from operator_runner.core.settings import ServerStart
from operator_runner.telemetry.output_thread import dropped_records


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
