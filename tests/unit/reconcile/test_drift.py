"""Which runs only correct drift, and what is shown of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from operator_runner.core.model import (
    GVK,
    Cause,
    Drift,
    JobTemplate,
    Json,
    ObjectRef,
    RunContent,
    Trigger,
    Watch,
)
from operator_runner.core.object_diff import ObjectDifference
from operator_runner.reconcile.annotations import (
    DRIFT_ANNOTATION,
    ERROR_CHANGED,
    read_overrides,
    requested_change,
)
from operator_runner.reconcile.conditions import put_condition
from operator_runner.reconcile.decide import ONCE, has_change
from operator_runner.reconcile.drift import (
    after_run,
    condition_of,
    drift_text,
    is_drift_run,
    policy_of,
)
from operator_runner.reconcile.preview import Preview

NOW = datetime(2026, 1, 2, tzinfo=UTC)
REF = ObjectRef(GVK("apps", "v1", "Deployment"), "default", "web")
WATCH = Watch(GVK("a.example.com", "v1", "A"), RunContent(role=Path("/a")), drift=Drift.WARN)
MARKED = after_run([], Drift.WARN, 3, NOW, applied=True)


def _body(
    generation: int = 3, conditions: Any = (), annotations: dict[str, str] | None = None
) -> Json:
    metadata = {"name": "a", "generation": generation, "annotations": annotations or {}}
    return {"metadata": metadata, "status": {"conditions": list(conditions)}}


@pytest.mark.parametrize(
    ("value", "policy"),
    [
        (None, Drift.WARN),
        ("ignore", Drift.IGNORE),
        ("enforce", Drift.ENFORCE),
        ("x", Drift.ENFORCE),
    ],
)
def test_the_annotation_overrides_the_watch(value: str | None, policy: Drift) -> None:
    """With an invalid one the resource is run, which reports the error and writes nothing."""
    annotations = {} if value is None else {"operator-runner.dev/drift": value}
    assert policy_of(_body(annotations=annotations), WATCH) is policy


def test_runs_that_are_jobs_are_not_previewed_in_the_operator() -> None:
    """The annotation is an error of the resource, as `warn` in the watch is one of the file."""
    body = _body(annotations={"operator-runner.dev/drift": "warn"})
    assert policy_of(body, replace(WATCH, job=JobTemplate("ee"))) is Drift.ENFORCE
    assert "cannot be used for runs that are Jobs" in read_overrides(body, as_job=True).error
    assert read_overrides(body).error == ""


@pytest.mark.parametrize(
    ("generation", "conditions", "succeeded", "expected"),
    [
        (3, MARKED, None, True),
        (3, [], 3, True),
        (3, [], None, False),
        (4, MARKED, None, False),
        (4, MARKED, 3, False),
        (3, [{**MARKED[0], "observedGeneration": {"a": 3}}], None, False),
        (3, [{**MARKED[0], "reason": ["Reconciled"]}], None, False),
    ],
)
def test_a_run_of_a_reconciled_generation_corrects_drift(
    generation: int, conditions: list[Json], succeeded: int | None, expected: bool
) -> None:
    """The condition shows the generation after a restart too."""
    assert is_drift_run(_body(generation, conditions), succeeded) is expected


def test_a_pending_request_is_not_drift() -> None:
    """After a restart only the annotation shows it."""
    requested = {"operator-runner.dev/requested-at": "1"}
    assert not is_drift_run(_body(3, MARKED, requested), 3)


@pytest.mark.parametrize(
    ("triggers", "expected"),
    [
        ([Trigger.START, Trigger.PERIOD, Trigger.RETRY, Trigger.DEPENDENT], False),
        ([Trigger.DEPENDENT, Trigger.SPEC], True),
        ([Trigger.REFERENCE], True),
        ([Trigger.REQUEUE], True),
        ([Trigger.SCHEDULE], True),
        ([Trigger.ANNOTATION], True),
    ],
)
def test_runs_for_a_changed_desired_state_write(triggers: list[Trigger], expected: bool) -> None:
    """Their runs write."""
    assert has_change(Cause(trigger) for trigger in triggers) is expected


def test_a_new_policy_does_not_change_the_desired_state() -> None:
    """A run with the policy `warn` reports; another annotation beside it is a change."""
    policy = Cause(Trigger.ANNOTATION, requested_change({}, {DRIFT_ANNOTATION: "warn"}))
    assert policy.detail == "drift policy changed"
    assert not has_change([policy])
    assert has_change([policy, Cause(Trigger.ANNOTATION, "note")])


def test_a_corrected_annotation_does_not_change_the_desired_state() -> None:
    """The role writes after a failure in any case; without one, drift stays with `ignore`."""
    assert not has_change([Cause(Trigger.ANNOTATION, ERROR_CHANGED, state_key="a")])


def test_a_reconcile_by_a_command_writes() -> None:
    """It is a request of a user."""
    assert has_change([ONCE])


def test_the_condition_has_the_writes_of_a_preview() -> None:
    """It keeps the generation; a run without the policy, or one that failed, removes it."""
    difference = ObjectDifference(REF, {"spec": {"replicas": 4}}, {"spec": {"replicas": 2}})
    (found,) = put_condition(MARKED, condition_of(Preview(REF, (difference,)), 3), NOW)
    assert (found["status"], found["observedGeneration"]) == ("True", 3)
    assert found["message"] == ("A run would write: Deployment default/web changed: spec.replicas")
    (equal,) = put_condition([found], condition_of(Preview(REF), 3), NOW)
    assert equal["status"] == "False"
    (failed,) = put_condition([found], condition_of(Preview(REF, failure="no"), 3), NOW)
    assert (failed["status"], failed["message"]) == ("Unknown", "The dry run failed: no")
    other = {"type": "Drifted", "reason": "OfTheRole", "status": "True"}
    assert after_run([found, other], Drift.ENFORCE, 3, NOW, applied=True) == [other]
    assert after_run([found], Drift.WARN, 3, NOW, applied=False) == []


def test_objects_beyond_the_first_five_are_counted() -> None:
    """The condition has the first ones."""
    created = ObjectDifference(REF, None, {})
    text = drift_text([created] * 7)
    assert text.count("Deployment default/web created") == 5
    assert text.endswith("; and 2 more")
