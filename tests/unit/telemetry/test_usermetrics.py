"""Metrics of roles: requests and their errors."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)

from operator_runner.telemetry import usermetrics
from operator_runner.telemetry.metrics import Metrics
from operator_runner.telemetry.usermetrics import UserMetricError, UserMetrics


def send(user: UserMetrics, name: str, **kind: Any) -> None:
    user.apply(json.dumps({"name": name, "description": f"about {name}", **kind}).encode())


@pytest.fixture
def metrics() -> Metrics:
    """Make the metrics of an operator."""
    return Metrics("1.2.3")


def value(metrics: Metrics, sample: str) -> float | None:
    """Read the text: its parser would give a counter the suffix that it must not have."""
    found = re.search(rf"^{sample}(?:{{.*}})? (\S+)$", metrics.render()[0].decode(), re.MULTILINE)
    return float(found[1]) if found else None


@pytest.mark.parametrize("name", ["backups", "backups_total"])
def test_a_counter_counts_under_its_own_name(metrics: Metrics, name: str) -> None:
    """It exists from the first request on, and is called a counter, with no suffix added."""
    send(metrics.user, name, counter={})
    assert value(metrics, name) == 0
    send(metrics.user, name, counter={"increment": True, "add": None})
    send(metrics.user, name, counter={"increment": False, "add": 3.5})
    assert value(metrics, name) == 4.5
    text = metrics.render()[0].decode()
    assert f"# HELP {name} about {name}\n# TYPE {name} counter\n{name} 4.5\n" in text


def test_a_gauge_does_all_its_operations(metrics: Metrics) -> None:
    """Set to 0 is an operation as well."""
    steps: list[tuple[dict[str, Any], float]] = [
        ({"set": 7}, 7),
        ({"increment": True}, 8),
        ({"decrement": True}, 7),
        ({"add": 1.5}, 8.5),
        ({"subtract": 8}, 0.5),
        ({}, 0.5),
        ({"set": 0}, 0),
        ({"add": -2}, -2),
    ]
    for operation, expected in steps:
        send(metrics.user, "nodes", gauge=operation)
        assert value(metrics, "nodes") == expected


def test_series_have_labels_and_end_with_their_resource(metrics: Metrics) -> None:
    """An info of a resource has one series; other names of labels are an error."""

    def ready(name: str, value: int) -> None:
        labels = {"namespace": "a", "name": name}
        send(metrics.user, "ready", gauge={"set": value}, labels=labels)

    def shown() -> list[str]:
        lines = metrics.render()[0].decode().splitlines()
        return [line for line in lines if line.startswith(("ready{", "web_info{"))]

    ready("one", 1)
    ready("two", 2)
    for version in ("1", "2"):
        labels = {"namespace": "a", "name": "one", "version": version}
        send(metrics.user, "web_info", gauge={"set": 1}, labels=labels)
    one, two = 'ready{name="one",namespace="a"} 1.0', 'ready{name="two",namespace="a"} 2.0'
    assert shown() == [one, two, 'web_info{name="one",namespace="a",version="2"} 1.0']
    with pytest.raises(UserMetricError, match="ready has name, namespace"):
        send(metrics.user, "ready", gauge={"set": 1}, labels={"other": "x"})
    with pytest.raises(UserMetricError, match="ready has name, namespace"):
        send(metrics.user, "ready", gauge={"set": 1})
    metrics.user.forget("a", "one")
    assert shown() == [two]


@pytest.mark.parametrize(
    ("labels", "complaint"),
    [
        (["a"], "labels must be an object"),
        ({"le": "1"}, "'le' is not a label name"),
        ({"a-b": "1"}, "'a-b' is not a label name"),
        ({"a": 1}, "labels.a must be a short text"),
    ],
)
def test_labels_are_checked(metrics: Metrics, labels: Any, complaint: str) -> None:
    """Their names are those of Prometheus, their values are texts."""
    with pytest.raises(UserMetricError, match=complaint):
        send(metrics.user, "ready", gauge={"set": 1}, labels=labels)


def test_a_gauge_takes_the_time() -> None:
    """Seconds since 1970."""
    registry = CollectorRegistry()
    user = UserMetrics(registry, clock=lambda: 1234.5)
    send(user, "last_backup", gauge={"set_to_current_time": True})
    assert registry.get_sample_value("last_backup") == 1234.5


def test_of_several_operations_one_is_done(metrics: Metrics) -> None:
    """In ansible-operator's order: increment, decrement, add, subtract, set, time."""
    names = ("set_to_current_time", "set", "subtract", "add", "decrement", "increment")
    given: dict[str, Any] = {}
    for name, expected in zip(names[1:], (40, 36, 38, 37, 38), strict=True):
        given[name] = {"set": 40, "subtract": 4, "add": 2}.get(name, True)
        send(metrics.user, "several", gauge=given)
        assert value(metrics, "several") == expected


@pytest.mark.parametrize("kind", ["histogram", "summary"])
def test_an_empty_request_observes_nothing(metrics: Metrics, kind: str) -> None:
    """Only an observation counts; 0 is one."""
    send(metrics.user, "took", **{kind: {}})
    send(metrics.user, "took", **{kind: {"observe": None}})
    assert value(metrics, "took_count") == 0
    send(metrics.user, "took", **{kind: {"observe": 0}})
    send(metrics.user, "took", **{kind: {"observe": 2.5}})
    assert value(metrics, "took_count") == 2
    assert value(metrics, "took_sum") == 2.5


def test_histogram_and_summary_take_each_others_requests(metrics: Metrics) -> None:
    """They are one type to existing roles; the first one is kept."""
    send(metrics.user, "took", histogram={"observe": 1})
    send(metrics.user, "took", summary={"observe": 2})
    assert value(metrics, "took_sum") == 3
    assert value(metrics, "took_bucket") is not None


@pytest.mark.parametrize(
    ("first", "called"),
    [
        ("counter", "counter"),
        ("gauge", "gauge"),
        ("histogram", "histogram or summary"),
        ("summary", "histogram or summary"),
    ],
)
def test_the_type_of_a_metric_cannot_change(metrics: Metrics, first: str, called: str) -> None:
    """A request of another type is refused in the contract's words, and changes nothing."""
    other = "counter" if first == "gauge" else "gauge"
    send(metrics.user, "it", **{first: {}})
    before = metrics.render()
    with pytest.raises(UserMetricError) as refusal:
        send(metrics.user, "it", **{other: {"increment": True}})
    assert str(refusal.value) == f"cannot change metric type of it, which is a {called}"
    assert [line for line in metrics.render()[0].splitlines() if b" it" in line] == [
        line for line in before[0].splitlines() if b" it" in line
    ]


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ('{"name": "a"}', "a request should contain at least one metric"),
        ('{"name": "a", "gauge": null}', "a request should contain at least one metric"),
        (
            '{"name": "a", "gauge": {}, "counter": {}}',
            "only one metric can be processed at a time",
        ),
        ('{"name": "a", "counter": {"add": -1}}', "counter metrics cannot decrease in value"),
        ("no", "invalid JSON body: Expecting value: line 1 column 1 (char 0)"),
        ("\xff", "invalid JSON body: "),
        ("[]", "the body must be a JSON object"),
        ('{"gauge": {}}', "name: '' is not a metric name"),
        ('{"name": "two words", "gauge": {}}', "name: 'two words' is not a metric name"),
        ('{"name": "0a", "gauge": {}}', "name: '0a' is not a metric name"),
        ('{"name": 1, "gauge": {}}', "name must be text, not 1"),
        ('{"name": "a", "description": [], "gauge": {}}', "description must be text, not []"),
        ('{"name": "a", "gauge": 3}', "gauge must be an object, not 3"),
        ('{"name": "a", "gauge": {"set": "3"}}', "gauge.set must be a finite number, not '3'"),
        ('{"name": "a", "gauge": {"set": true}}', "gauge.set must be a finite number, not True"),
        ('{"name": "a", "gauge": {"set": NaN}}', "gauge.set must be a finite number, not nan"),
        ('{"name": "a", "gauge": {"set": 1e999}}', "gauge.set must be a finite number, not inf"),
        (
            '{"name": "a", "gauge": {"set": 1' + "0" * 400 + "}}",
            "gauge.set must be a finite number, not 1",
        ),
        ('{"name": "a", "counter": {"increment": 1}}', "counter.increment must be true or false"),
    ],
)
def test_a_wrong_request_is_refused(metrics: Metrics, body: str, complaint: str) -> None:
    """The text names the field; no metric comes of it."""
    with pytest.raises(UserMetricError) as refusal:
        metrics.user.apply(body.encode("latin-1"))
    assert str(refusal.value).startswith(complaint)
    assert value(metrics, "a") is None


@pytest.mark.parametrize(
    "name",
    [
        "workqueue_depth",
        "reconciles_total",
        "ansible_operator_reconciles_bucket",
        "process_resident_memory_bytes",
        "took_sum",
    ],
)
@pytest.mark.parametrize("kind", ["counter", "gauge", "histogram", "summary"])
def test_names_of_others_are_refused(metrics: Metrics, name: str, kind: str) -> None:
    """Neither the operator's metrics nor parts of another one can be taken or changed."""
    send(metrics.user, "took", summary={"observe": 5})
    before = value(metrics, name)
    with pytest.raises(UserMetricError, match=f"name: {name} is used by another metric"):
        send(metrics.user, name, **{kind: {}})
    assert value(metrics, "took_sum") == 5
    if not name.startswith("process_"):
        assert value(metrics, name) == before


def test_unknown_fields_are_ignored(metrics: Metrics) -> None:
    """As in ansible-operator, whose decoder skips them."""
    send(metrics.user, "nodes", gauge={"set": 3, "colour": "red"}, labels={"a": "b"})
    assert value(metrics, "nodes") == 3


def test_openmetrics_takes_every_type(metrics: Metrics) -> None:
    """The preferred format of Prometheus can be parsed too, with the names of the role."""
    for kind in ("counter", "gauge", "histogram", "summary"):
        send(metrics.user, f"my_{kind}", **{kind: {}})
    body, _ = metrics.render("application/openmetrics-text;version=1.0.0")
    families = parse_openmetrics(body.decode())  # type: ignore[no-untyped-call]
    samples = {sample.name: sample.value for family in families for sample in family.samples}
    assert {"my_counter", "my_gauge", "my_histogram_count", "my_summary_sum"} <= samples.keys()


def test_concurrent_requests_are_all_counted(metrics: Metrics) -> None:
    """Requests at the same time are all counted, the first ones of a name included."""
    with ThreadPoolExecutor(8) as pool:
        for _ in pool.map(
            lambda _: send(metrics.user, "hits", counter={"increment": True}), range(400)
        ):
            pass
    assert value(metrics, "hits") == 400


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("[" * 100_000, "nested too deep"),
        ('{"name": ' + "[" * 800 + "]" * 800 + "}", "name must be text"),
        ('{"name": "a", "gauge": {"set": ' + "9" * 4000 + "}}", "finite number"),
        ('{"name": "a", "gauge": {"set": ' + "9" * 5000 + "}}", "invalid JSON"),
        ('{"name": "a", "gauge": {"set": NaN}}', "finite number"),
        ('{"name": "' + "a" * 100_000 + '", "gauge": {"set": 1}}', "200 characters at most"),
    ],
)
def test_a_hostile_request_is_refused_with_a_short_reason(
    metrics: Metrics, body: str, problem: str
) -> None:
    """It is refused with a reason that is short, however long the request is."""
    with pytest.raises(UserMetricError, match=problem) as refused:
        metrics.user.apply(body.encode())
    assert len(str(refused.value)) < 500


def test_a_description_that_is_not_text(metrics: Metrics) -> None:
    """One role cannot make all metrics unreadable."""
    metrics.user.apply(b'{"name": "odd", "description": "\\ud800", "gauge": {"set": 1}}')
    assert value(metrics, "odd") == 1


def test_roles_make_so_many_metrics_at_most(
    metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of names is limited; existing ones still work."""
    monkeypatch.setattr(usermetrics, "_MAX_METRICS", 10)
    for number in range(10):
        send(metrics.user, f"m{number}", gauge={"set": 1})
    with pytest.raises(UserMetricError, match="exceeds the limit of 10 metrics"):
        send(metrics.user, "m10", gauge={"set": 1})
    send(metrics.user, "m0", gauge={"set": 2})
    assert value(metrics, "m0") == 2
