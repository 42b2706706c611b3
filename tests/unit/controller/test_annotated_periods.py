"""A changed annotation reconcile-period schedules a run."""

from __future__ import annotations

import pytest

from operator_runner.controller.sources.primary import AnnotatedPeriods
from operator_runner.core.model import GVK, Cause, Json, ObjectRef, Trigger

REF = ObjectRef(GVK("example.com", "v1", "Foo"), "default", "a")
KEY = "ansible.sdk.operatorframework.io/reconcile-period"


def annotated(period: str | None = None) -> Json:
    """Return a resource, with the annotation if a period is given."""
    annotations = {} if period is None else {KEY: period}
    return {"metadata": {"name": "a", "annotations": annotations}}


class Recorder:
    """What would be scheduled, with the delay in seconds."""

    def __init__(self) -> None:
        self.scheduled: list[tuple[str, float]] = []
        self.periods = AnnotatedPeriods(self.add_after)

    def add_after(self, ref: ObjectRef, cause: Cause, delay: float) -> None:
        assert (ref, cause.trigger) == (REF, Trigger.PERIOD)
        self.scheduled.append((cause.detail, delay))


def test_a_changed_period_schedules_a_run_once() -> None:
    """Other changes of the resource do not."""
    recorder = Recorder()
    for body in (annotated(), annotated("10s"), annotated("10s"), annotated("1h")):
        recorder.periods.on_change(REF, body)
    assert recorder.scheduled == [("10s", 10.0), ("1h", 3600.0)]


def test_a_period_below_a_second_is_a_second() -> None:
    """As for the periods of flags and watches."""
    recorder = Recorder()
    recorder.periods.on_change(REF, annotated("1ms"))
    assert recorder.scheduled == [("1s", 1.0)]


@pytest.mark.parametrize("body", [annotated(), annotated("0s"), annotated("soon"), None])
def test_without_a_period_nothing_is_scheduled(body: Json | None) -> None:
    """The next run reads the annotation; a period that returns is new."""
    recorder = Recorder()
    recorder.periods.on_change(REF, annotated("10s"))
    recorder.periods.on_change(REF, body)
    assert recorder.scheduled == [("10s", 10.0)]
    recorder.periods.on_change(REF, annotated("10s"))
    assert recorder.scheduled == [("10s", 10.0), ("10s", 10.0)]
