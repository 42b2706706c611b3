"""Past runs from Events and operators."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from click.testing import CliRunner

from operator_runner.core.model import GVK, Json, ObjectRef
from operator_runner.kube.cluster import DURATION_ANNOTATION
from operator_runner.tools.operator_api.run_history import record_of, unrecorded
from operator_runner.tools.run_lines import RunLine, header
from operator_runner.tools.runs.display import resource_name
from operator_runner.tools.runs.why import History, folded, pod_of_failure, why

FOO = ObjectRef(GVK("example.com", "v1", "Foo"), "default", "a")


def event(**more: Any) -> Json:
    annotations = {
        "operator-runner.dev/cause": "spec: spec.size",
        "operator-runner.dev/duration-seconds": "1.234",
        "operator-runner.dev/run-id": "4f0c19d2a8b3e671",
    }
    return {
        "metadata": {"annotations": annotations},
        "eventTime": "2026-01-05T12:00:00.000000Z",
        "type": "Normal",
        "reason": "Successful",
        "note": "Reconciled: 1 tasks ok, 1 changed (why: spec: spec.size)",
        "regarding": {"apiVersion": "example.com/v1", "kind": "Foo", "name": "a", "uid": "u"},
        **more,
    }


def line_of(event: Json) -> RunLine:
    record = record_of(event)
    assert record is not None
    return RunLine.of(record)


def test_an_event_is_a_line() -> None:
    """Time, duration, outcome, causes; the note only where something went wrong."""
    line = line_of(event())
    assert (line.seconds, line.outcome, line.why) == (1.234, "succeeded", "spec: spec.size")
    now = datetime(2026, 1, 5, 12, 5, 3, tzinfo=UTC)
    assert line.text(now).split() == [
        *("2026-01-05T12:00:00Z", "5m3s", "1.2", "s", "succeeded", "4f0c19d2a8b3e671"),
        *("spec:", "spec.size"),
    ]
    failed = line_of(
        event(
            type="Warning",
            reason="Failed",
            note="no (why: spec: spec.size)",
            series={"count": 7, "lastObservedTime": "2026-01-05T12:09:00.000000Z"},
        )
    )
    assert (failed.outcome, failed.note, failed.count) == ("failed", "no", 7)
    assert failed.ended == datetime(2026, 1, 5, 12, 9, tzinfo=UTC)
    assert "failed (x7)" in failed.text(now)


@pytest.mark.parametrize(
    "forged",
    [
        {"eventTime": None},
        {"eventTime": "yesterday"},
        {"eventTime": "2026-01-05T12:00:00"},
        {"eventTime": "0001-01-01T00:00:00+23:00"},
        {"metadata": {"annotations": {DURATION_ANNOTATION: "long"}}},
        {"metadata": {"annotations": {DURATION_ANNOTATION: "nan"}}},
        {"metadata": {"annotations": {DURATION_ANNOTATION: "1e300"}}},
        {"metadata": {"annotations": {DURATION_ANNOTATION: "9e10"}}},
        {"note": None},
        {"reason": None},
        {"regarding": {"kind": "Foo"}},
    ],
)
def test_an_event_of_another_shape_is_left_out(forged: dict[str, Any]) -> None:
    """Whoever may create Events cannot end the commands that read them."""
    assert record_of(event(type="Warning")) is not None
    altered = event(type="Warning") | forged
    assert record_of({key: value for key, value in altered.items() if value is not None}) is None


def test_an_event_about_a_run_that_an_operator_has_is_not_repeated() -> None:
    """Findings about the same run stay."""
    records = [record_of(event()), record_of(event(reason="LongTask"))]
    found = [each for each in records if each is not None]
    assert unrecorded(found, []) == found
    assert [each["outcome"] for each in unrecorded(found, [{"id": found[0]["id"]}])] == [
        "long task"
    ]


@pytest.mark.parametrize("wrong", ["Foo/", "/a", "Foo/a/b"])
def test_an_invalid_name_is_reported_with_the_format(wrong: str) -> None:
    """KIND/NAME, with an example."""
    result = CliRunner().invoke(why, [wrong])
    assert result.exit_code == 2
    assert "write KIND/NAME" in result.output


def test_the_replica_is_shown_if_there_are_several() -> None:
    """Events name the Pod that ran a resource."""
    now = datetime.now(UTC)
    first = RunLine(now, 1.0, "succeeded", "spec", run_id="1", replica="web-7d4b9-k9qzl")
    second = replace(first, replica="web-7d4b9-x2x8p")
    assert "REPLICA" not in header(History(FOO, (first, first)).widths())
    assert "REPLICA" in header(History(FOO, (first, first)).widths(is_wide=True))

    history = History(FOO, (first, second))

    columns = header(history.widths())
    assert columns.split()[-2:] == ["REPLICA", "CAUSE"]
    for line in history.lines:
        shown = line.text(now, history.widths())
        assert shown.index(line.replica) == columns.index("REPLICA")
        assert shown.index("spec") == columns.index("CAUSE")


def test_the_pod_of_a_failed_run_prints_how_to_repeat_it() -> None:
    """Only it has the files: there is no hint after a success, and if the Pod does not answer."""
    line = RunLine(datetime.now(UTC), 1.0, "failed", "spec", run_id="1", replica="web-2")
    operators = ["operator at http://127.0.0.1:8443", "Pod apps/web-1", "Pod apps/web-2"]
    pod = pod_of_failure([line], operators)
    assert History(FOO, (line,), pod=pod).rerun_hint == (
        "kubectl exec --namespace=apps web-2 -- "
        "operator-runner why foo.example.com/a --namespace=default"
    )
    assert pod_of_failure([line], operators[:2]) == ""
    assert pod_of_failure([replace(line, outcome="succeeded"), line], operators) == ""
    assert History(FOO, (line,)).rerun_hint == ""


def test_the_resource_of_a_run_is_shown_with_its_group_where_kinds_share_a_name() -> None:
    """As in `get`; the group of the core API is empty."""
    run = {"resource": {"apiVersion": "two.example.com/v1", "kind": "Twin", "name": "a"}}
    assert resource_name(run) == "twin/a"
    assert resource_name(run, with_group=True) == "twin.two.example.com/a"
    service = {"resource": {"apiVersion": "v1", "kind": "Service", "name": "a"}}
    assert resource_name(service, with_group=True) == "service/a"


def test_a_history_of_a_kind_names_the_resources() -> None:
    """`why KIND` has a column with namespace and name."""
    now = datetime.now(UTC)
    lines = tuple(
        RunLine(now, 1.0, "succeeded", "spec", ref=replace(FOO, name=name))
        for name in ("a", "bcdef")
    )
    history = History(replace(FOO, name=""), lines)
    columns = header(history.widths())
    assert columns.split()[-2:] == ["RESOURCE", "CAUSE"]
    for line in lines:
        shown = line.text(now, history.widths())
        assert shown.index(line.place) == columns.index("RESOURCE")
        assert shown.index("spec") == columns.index("CAUSE")
    assert [each["name"] for each in map(RunLine.as_json, lines)] == ["a", "bcdef"]


def test_failures_that_repeat_are_one_line() -> None:
    """As a series of Events is; another message or another run between them begins a new line."""
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)

    def line(minute: int, outcome: str, note: str = "") -> RunLine:
        return RunLine(noon + timedelta(minutes=minute), 1.0, outcome, "retry", note)

    lines = [line(0, "failed", "a"), line(1, "succeeded"), line(2, "failed", "a")]
    lines += [line(3, "failed", "a"), line(4, "failed", "b"), line(5, "succeeded")]
    found = [(each.outcome, each.note, each.count) for each in folded(lines)]
    assert found == [
        ("succeeded", "", 1),
        ("failed", "b", 1),
        ("failed", "a", 2),
        ("succeeded", "", 1),
        ("failed", "a", 1),
    ]
