"""Counters and gauges hold what happened."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from operator_runner.core.model import GVK, Cause, ObjectRef, Trigger
from operator_runner.core.resource_states import ResourceStates
from operator_runner.telemetry.metrics import Metrics, Outcome, RunTimes

FOO = GVK("cache.example.com", "v1alpha1", "Foo")
FOO_LABELS = {"group": "cache.example.com", "version": "v1alpha1", "kind": "Foo"}
SPEC = Cause(Trigger.SPEC, "created")
CONTROLLER = {"controller": "foo-v1alpha1-controller"}
QUEUE = {"name": "foo-v1alpha1-controller", **CONTROLLER}


class Clock:
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """Tell the time."""
        return self.now


def watching(clock: Clock | None = None) -> Metrics:
    """Return metrics of an operator that watches Foo with three workers."""
    metrics = Metrics("1.2.3", "abc", clock or Clock())
    metrics.watching(FOO, 3)
    return metrics


def samples(metrics: Metrics) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Return the samples of a scrape, by name and labels."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(metrics.render()[0].decode())
        for sample in family.samples
    }


def value(metrics: Metrics, name: str, labels: dict[str, str]) -> float | None:
    """Return one sample of a scrape; None if the series does not exist."""
    return samples(metrics).get((name, frozenset(labels.items())))


def test_the_build_is_exported() -> None:
    """Version and commit are labels of a constant 1."""
    labels = {"version": "1.2.3", "commit": "abc"}
    assert value(watching(), "ansible_operator_build_info", labels) == 1


def test_series_of_a_kind_exist_before_anything_happened() -> None:
    """A rate over a counter that appears with its first event would miss that event."""
    seen = samples(watching())
    result = {"GVK": "cache.example.com/v1alpha1, Kind=Foo", "result": "failed"}
    run = {**FOO_LABELS, "trigger": "dependent", "outcome": "failed"}
    for name, labels in (
        ("reconciles_total", {}),
        ("controller_runtime_reconcile_errors_total", CONTROLLER),
        ("controller_runtime_reconcile_total", {**CONTROLLER, "result": "requeue_after"}),
        ("controller_runtime_active_workers", CONTROLLER),
        ("ansible_operator_reconcile_result", result),
        ("operator_runner_runs_total", run),
        ("workqueue_depth", QUEUE | {"priority": ""}),
        ("workqueue_adds_total", QUEUE),
    ):
        assert seen[name, frozenset(labels.items())] == 0


def test_the_share_of_a_kind_is_exported() -> None:
    """The number of workers is a gauge."""
    name = "controller_runtime_max_concurrent_reconciles"
    assert value(watching(), name, CONTROLLER) == 3


def test_the_counter_of_the_book_equals_the_sum_of_controller_runtime() -> None:
    """`reconciles_total` counts each attempt, with any result."""
    metrics = watching()
    for result in ("success", "error", "requeue", "requeue_after", "success"):
        metrics.reconcile_started(FOO)
        metrics.reconcile_finished(FOO, result, 0.1)
    seen = samples(metrics)
    total = sum(v for (name, _), v in seen.items() if name == "controller_runtime_reconcile_total")
    assert seen["reconciles_total", frozenset()] == total == 5
    assert value(metrics, "controller_runtime_reconcile_errors_total", CONTROLLER) == 1
    assert value(metrics, "controller_runtime_reconcile_time_seconds_count", CONTROLLER) == 5
    assert value(metrics, "controller_runtime_active_workers", CONTROLLER) == 0


def test_work_under_way_grows_old_until_its_reconcile_ends() -> None:
    """A stuck reconcile shows as a rising age; the one that ended is no longer counted."""
    clock = Clock()
    metrics = watching(clock)
    metrics.reconcile_started(FOO)
    clock.now += 60
    metrics.reconcile_started(FOO)
    clock.now += 10
    assert value(metrics, "workqueue_unfinished_work_seconds", QUEUE) == 80
    assert value(metrics, "workqueue_longest_running_processor_seconds", QUEUE) == 70
    assert value(metrics, "controller_runtime_active_workers", CONTROLLER) == 2
    metrics.reconcile_finished(FOO, "success", 10)
    assert value(metrics, "workqueue_longest_running_processor_seconds", QUEUE) == 70
    metrics.reconcile_finished(FOO, "success", 70)
    assert value(metrics, "workqueue_longest_running_processor_seconds", QUEUE) == 0


def test_the_result_gauge_is_one_for_the_last_result_only() -> None:
    """It is a state, not a count: after a repair the failure is gone."""
    metrics = watching()
    gvk = "cache.example.com/v1alpha1, Kind=Foo"
    states = []
    outcomes: tuple[Outcome, ...] = ("failed", "failed", "succeeded")
    for outcome in outcomes:
        metrics.run_finished(FOO, [SPEC], outcome, RunTimes(0, 2))
        states.append(
            tuple(
                value(metrics, "ansible_operator_reconcile_result", {"GVK": gvk, "result": result})
                for result in ("succeeded", "failed")
            )
        )
    assert states == [(0, 1), (0, 1), (1, 0)]


def test_a_run_is_counted_by_cause_and_outcome_and_timed() -> None:
    """The histogram holds the real duration of the play."""
    metrics = watching()
    causes = [Cause(Trigger.DEPENDENT, "x"), Cause(Trigger.DEPENDENT, "y"), SPEC]
    metrics.run_finished(FOO, causes, "succeeded", RunTimes(7, 42))
    run = {**FOO_LABELS, "trigger": "dependent", "outcome": "succeeded"}
    gvk = {"GVK": "cache.example.com/v1alpha1, Kind=Foo"}
    assert value(metrics, "operator_runner_runs_total", run) == 1
    assert value(metrics, "operator_runner_run_duration_seconds_sum", run) == 42
    assert value(metrics, "operator_runner_queue_duration_seconds_sum", run) == 7
    for trigger, count in (("dependent", 1), ("spec", 1), ("period", 0)):
        labels = {**run, "trigger": trigger}
        assert value(metrics, "operator_runner_run_causes_total", labels) == count
    assert value(metrics, "ansible_operator_reconciles_sum", gvk) == 42
    assert value(metrics, "ansible_operator_reconciles_bucket", {**gvk, "le": "30.0"}) == 0
    assert value(metrics, "ansible_operator_reconciles_bucket", {**gvk, "le": "60.0"}) == 1


def test_tasks_are_timed_by_name_and_their_number_is_bounded() -> None:
    """Names may be templates; those after the first hundred share one series."""
    metrics = watching()
    for number in range(250):
        metrics.task_finished(FOO, f"Make {number}", "debug", 0.5)
        metrics.task_finished(FOO, "Make 7", "debug", 0.5)
    family = "operator_runner_task_duration_seconds_count"
    series = {key for key in samples(metrics) if key[0] == family}
    assert len(series) == 101
    labels = {**FOO_LABELS, "task": "Make 7", "action": "debug"}
    assert value(metrics, "operator_runner_task_duration_seconds_sum", labels) == 125.5
    other = {**FOO_LABELS, "task": "other", "action": "other"}
    assert value(metrics, "operator_runner_task_duration_seconds_count", other) == 150


def test_throttled_loops_are_counted() -> None:
    """One for each run that is held back."""
    metrics = watching()
    metrics.run_throttled(FOO)
    assert value(metrics, "operator_runner_reconcile_loops_throttled_total", FOO_LABELS) == 1


def test_events_and_failures_of_triggers_are_counted() -> None:
    """By the kind of the object, as kubectl accepts it, and by the key of the expression."""
    metrics = watching()
    for kind, resources in (("Zone", 2), ("Zone", 0)):
        metrics.trigger_handled(FOO, GVK("example.com", "v1", kind), resources)
    metrics.expression_failed(FOO, "triggers[0].name")
    zones = {**FOO_LABELS, "object_kind": "Zone.example.com"}
    assert value(metrics, "operator_runner_trigger_events_total", zones) == 1
    failures = {**FOO_LABELS, "key": "triggers[0].name"}
    assert value(metrics, "operator_runner_expression_failures_total", failures) == 1


def test_a_resource_has_its_series_as_long_as_it_exists() -> None:
    """Names of objects are labels only here, so nothing may stay behind."""
    metrics = watching()
    ref = ObjectRef(FOO, "default", "web")
    labels = {**FOO_LABELS, "namespace": "default", "name": "web"}
    metrics.resource_seen(ref, 1767225600.0)
    assert value(metrics, "resource_created_at_seconds", labels) == 1767225600.0
    metrics.resource_gone(ref)
    metrics.resource_gone(ref)
    assert value(metrics, "resource_created_at_seconds", labels) is None


def test_the_queue_exports_depth_adds_retries_and_times() -> None:
    """Names are client-go's."""
    metrics = watching()
    metrics.queue_added(FOO)
    metrics.queue_added(FOO)
    metrics.measure_queue(FOO, lambda: 2)
    metrics.queue_waited(FOO, 0.5)
    metrics.queue_worked(FOO, 1.5)
    metrics.queue_retried(FOO)
    assert [
        value(metrics, name, QUEUE)
        for name in (
            "workqueue_adds_total",
            "workqueue_queue_duration_seconds_sum",
            "workqueue_work_duration_seconds_sum",
            "workqueue_retries_total",
        )
    ] == [2, 0.5, 1.5, 1]
    assert value(metrics, "workqueue_depth", QUEUE | {"priority": ""}) == 2


def test_requests_to_the_api_are_counted() -> None:
    """By code, method and host, as client-go does; a method that a play made up adds no series."""
    metrics = watching()
    for status, method in ((200, "GET"), (200, "GET"), (None, "POST"), (405, "BREW")):
        metrics.api_requests.count(status, method, "10.0.0.1:443")
    assert {
        (labels["code"], labels["method"], labels["host"]): count
        for (name, pairs), count in samples(metrics).items()
        if name == "rest_client_requests_total" and (labels := dict(pairs))
    } == {
        ("200", "GET", "10.0.0.1:443"): 2,
        ("<error>", "POST", "10.0.0.1:443"): 1,
        ("405", "OTHER", "10.0.0.1:443"): 1,
    }


def test_leadership_is_a_gauge() -> None:
    """1 while the Lease is held, 0 after."""
    metrics = watching()
    states = []
    for leads in (True, False):
        metrics.leading("nginx", leads)
        states.append(value(metrics, "leader_election_master_status", {"name": "nginx"}))
    assert states == [1, 0]


def test_same_kind_and_version_in_two_groups_stay_apart() -> None:
    """The second one has its group in the name, the first keeps the compatible name."""
    metrics = watching()
    metrics.watching(GVK("other.example.com", "v1alpha1", "Foo"), 7)
    name = "controller_runtime_max_concurrent_reconciles"
    other = {"controller": "foo-v1alpha1-other.example.com-controller"}
    assert (value(metrics, name, CONTROLLER), value(metrics, name, other)) == (3, 7)


def test_two_operators_in_one_process_do_not_mix() -> None:
    """The registry belongs to the instance."""
    first, second = watching(), watching()
    first.reconcile_started(FOO)
    first.reconcile_finished(FOO, "success", 1)
    assert (value(first, "reconciles_total", {}), value(second, "reconciles_total", {})) == (1, 0)


def test_failing_resources_are_counted_with_the_age_of_the_oldest_failure() -> None:
    """A failing resource counts once, until it succeeds or goes."""
    clock = Clock()
    metrics, states = watching(clock), ResourceStates()
    metrics.measure_resources(states)
    one, two = (states.of(ObjectRef(FOO, "ns", name)) for name in ("one", "two"))

    def failures() -> tuple[float | None, float | None]:
        return (
            value(metrics, "operator_runner_failing_resources", FOO_LABELS),
            value(metrics, "operator_runner_oldest_failure_age_seconds", FOO_LABELS),
        )

    assert failures() == (0, 0)
    metrics.record_result(one, failed=True)
    clock.now += 10
    metrics.record_result(two, failed=True)
    clock.now += 10
    metrics.record_result(one, failed=True)
    assert failures() == (2, 20)
    metrics.record_result(one, failed=False)
    assert failures() == (1, 10)
    states.pop(two.ref)
    assert failures() == (0, 0)


def test_runs_that_pass_their_deadline_are_counted() -> None:
    """The series is there from the start, with 0."""
    metrics = watching()
    assert value(metrics, "operator_runner_run_timeouts_total", FOO_LABELS) == 0
    metrics.run_timed_out(FOO)
    assert value(metrics, "operator_runner_run_timeouts_total", FOO_LABELS) == 1


def test_what_runs_share_is_measured() -> None:
    """Free memory is measured at each scrape; starts of the fork server are counted."""
    metrics = watching()
    name = "operator_runner_fork_server_starts_total"
    assert value(metrics, name, {"reason": "exited"}) == 0
    metrics.machine.fork_servers.labels("exited").inc()
    assert value(metrics, name, {"reason": "exited"}) == 1
    free = iter([5, 7])
    metrics.machine.free_memory.set_function(lambda: next(free))
    assert value(metrics, "operator_runner_free_memory_bytes", {}) == 5
    assert value(metrics, "operator_runner_free_memory_bytes", {}) == 7


def test_resources_whose_role_is_not_idempotent_are_counted() -> None:
    """Each once, until its role is idempotent again or it is deleted."""
    metrics, states = watching(), ResourceStates()
    metrics.measure_resources(states)
    name = "operator_runner_not_idempotent_resources"
    assert value(metrics, name, FOO_LABELS) == 0
    first, second = (states.of(ObjectRef(FOO, "default", each)) for each in "ab")
    first.is_idempotent = second.is_idempotent = False
    assert value(metrics, name, FOO_LABELS) == 2
    first.is_idempotent = True
    assert value(metrics, name, FOO_LABELS) == 1
