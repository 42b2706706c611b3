"""One reconcile as spans of time, and the picture of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from xml.etree import ElementTree as ET

from bench.picture import svg
from bench.process_timeline import ProcessLifetime
from bench.reconcile_spans import Span, Traces
from bench.recorder import Request


def at(milliseconds: float) -> float:
    return 1000 + milliseconds / 1000


def stamp(milliseconds: float) -> str:
    return datetime.fromtimestamp(at(milliseconds), UTC).isoformat()


def event(milliseconds: float, kind: str, task: str = "") -> dict[str, Any]:
    return {"created": stamp(milliseconds), "event": kind, "event_data": {"task": task}}


def traces() -> Traces:
    log = [("Queued", 5), ("Reconciling", 6), ("Reconciled", 100)]
    return Traces(
        edited=at(0),
        prepared=at(20),
        log=[{"msg": message, "ts": stamp(when)} for message, when in log],
        events=[
            event(40, "playbook_on_start"),
            event(50, "playbook_on_task_start", "one"),
            event(60, "runner_on_ok", "one"),
            event(62, "playbook_on_task_start", "two"),
            event(80, "runner_on_ok", "two"),
        ],
        lifetimes=[
            ProcessLifetime(10, 1, 1, at(-50), at(90)),
            ProcessLifetime(11, 10, 2, at(-40), at(85)),
            ProcessLifetime(12, 10, 2, at(52), at(60)),
            ProcessLifetime(13, 11, 3, at(64), at(70)),
            ProcessLifetime(20, 1, 1, at(80), at(200)),
        ],
        requests=[Request("GET threes", at(8), at(10)), Request("GET old", at(-9), at(-8))],
    )


def lane(name: str) -> list[tuple[str, int, int]]:
    spans = [span for span in traces().spans() if span.lane == name]
    return [(span.name, round(span.begin), round(span.end)) for span in spans]


def test_spans_of_the_operator_have_no_gaps() -> None:
    """Every millisecond from the edit to the end is in one span."""
    assert lane("operator") == [
        ("edit to event", 0, 5),
        ("queue", 5, 6),
        ("read, status, private data dir", 6, 20),
        ("run", 20, 90),
        ("report", 90, 100),
    ]


def test_a_play_consists_of_setup_tasks_and_gaps() -> None:
    """The time between two tasks is a span as well."""
    assert lane("play") == [
        ("fork", 20, 20),
        ("play set-up", 20, 50),
        ("one", 50, 60),
        ("between tasks", 60, 62),
        ("two", 62, 80),
        ("end of play", 80, 90),
    ]


def test_processes_are_named_by_their_part_in_the_run() -> None:
    """Processes that start earlier or end later count for their time within the run."""
    assert lane("processes") == [
        ("supervisor", 20, 90),
        ("play", 20, 85),
        ("module", 52, 60),
        ("worker", 64, 70),
        ("for the next run", 80, 90),
    ]


def test_requests_before_the_edit_are_left_out() -> None:
    """They belong to the phase before."""
    assert lane("API") == [("GET threes", 8, 10)]


def test_the_picture_names_every_span() -> None:
    """It is valid XML for all names of tasks, and has a tooltip for each box."""
    spans = [*traces().spans(), Span("play", "<& a task>", 0, 10)]
    root = ET.fromstring(svg(spans, "An edit"))
    titles = [title.text for title in root.iter("{http://www.w3.org/2000/svg}title")]
    assert len(titles) == len(spans)
    assert "<& a task>: 10.0 ms" in titles


def test_boxes_of_a_lane_do_not_hide_each_other() -> None:
    """Simultaneous spans are in separate rows."""
    spans = [Span("API", "a", 0, 10), Span("API", "b", 5, 15), Span("API", "c", 10, 20)]
    root = ET.fromstring(svg(spans, "Three"))
    boxes = root.findall("{http://www.w3.org/2000/svg}g/{http://www.w3.org/2000/svg}rect")
    rows = [box.get("y") for box in boxes]
    assert rows[0] == rows[2] != rows[1]


def test_a_supervisor_that_was_last_seen_before_the_end_of_its_last_task_is_found() -> None:
    """A busy machine looks at the processes late, and those for the next run may not be there."""
    seen = [ProcessLifetime(10, 1, 1, at(-50), at(75)), ProcessLifetime(11, 10, 2, at(-40), at(75))]
    spans = replace(traces(), lifetimes=seen).spans()
    assert {span.name for span in spans if span.lane == "processes"} == {"supervisor", "play"}
