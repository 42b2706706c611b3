"""Features act in the runs of resources that use them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from operator_runner.core.model import GVK, Cause, ObjectRef, RunContent, Trigger, Watch
from operator_runner.core.resource_states import ResourceState
from operator_runner.reconcile.decide import Run
from operator_runner.reconcile.observer import Observer, ResourceRun

WATCH = Watch(GVK("a.example.com", "v1", "A"), RunContent(role=Path("/a")))


class _Slot:
    pass


@pytest.mark.parametrize(
    ("annotations", "condition", "has_slot", "trigger"),
    [
        ({"a": "1"}, "B", False, Trigger.SPEC),
        ({}, "Marked", False, Trigger.SPEC),
        ({}, ["Marked"], True, Trigger.SPEC),
        ({}, None, False, Trigger.PERIOD),
    ],
)
def test_a_feature_acts_where_the_resource_has_one_of_its_marks(
    annotations: dict[str, str], condition: Any, has_slot: bool, trigger: Trigger
) -> None:
    """An annotation, a condition, a slot of the state or a cause; without marks it always acts."""
    always, marked, other = Observer(), Observer(), Observer()
    marked.marks = {"a", "Marked", _Slot, Trigger.PERIOD}
    other.marks = {"c", Trigger.START}
    state = ResourceState(ObjectRef(WATCH.gvk, "default", "a"))
    if has_slot:
        state.slot(_Slot)
    metadata = {"name": "a", "uid": "1", "annotations": annotations}
    body = {"metadata": metadata, "status": {"conditions": [{"type": condition}]}}
    action, observers = Run(cleanup=False), [always, marked, other]
    run = ResourceRun(state.ref, body, [Cause(trigger)], WATCH, state, action, observers=observers)
    assert run.acting() == [always, marked]
