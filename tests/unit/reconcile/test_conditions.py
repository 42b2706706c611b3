"""The conditions of a resource through its life."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from operator_runner.core.model import FORMER_OWNER, Json, RunOutcome, Stats, TaskFailure
from operator_runner.reconcile import conditions

T1 = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
T2 = datetime(2026, 1, 2, 4, 0, 0, tzinfo=UTC)
T3 = datetime(2026, 1, 2, 5, 0, 0, tzinfo=UTC)


def by_type(found: list[Json]) -> dict[str, Json]:
    assert len({c["type"] for c in found}) == len(found)
    return {c["type"]: c for c in found}


def well(now: datetime, changed: int = 0) -> RunOutcome:
    return RunOutcome(Stats(ok=3, changed=changed, skipped=1), finished=now)


def asking(now: datetime, changed: int = 0, seconds: int = 10) -> RunOutcome:
    return RunOutcome(Stats(ok=3, changed=changed), (), timedelta(seconds=seconds), now)


def test_the_first_run_sets_running() -> None:
    """A new resource gets the condition Running alone."""
    assert conditions.started([], 1, T1) == [
        {
            "type": "Running",
            "status": "True",
            "reason": "Running",
            "message": "Running reconciliation",
            "observedGeneration": 1,
            "lastTransitionTime": "2026-01-02T03:04:05Z",
        }
    ]


def test_a_success_has_the_texts_of_the_contract() -> None:
    """After a success Running stays True and awaits, Failure is False and empty."""
    found = by_type(conditions.finished(conditions.started([], 1, T1), well(T2), 1, T2))
    recap = {
        "ok": 3,
        "changed": 0,
        "skipped": 1,
        "failures": 0,
        "completion": "2026-01-02T04:00:00+00:00",
    }
    assert found["Running"] == {
        "type": "Running",
        "status": "True",
        "reason": "Successful",
        "message": "Awaiting next reconciliation",
        "observedGeneration": 1,
        "lastTransitionTime": "2026-01-02T03:04:05Z",
        "ansibleResult": recap,
    }
    assert found["Successful"]["message"] == "Last reconciliation succeeded"
    assert found["Failure"] == {
        "type": "Failure",
        "status": "False",
        "reason": "",
        "message": "",
        "observedGeneration": 1,
        "lastTransitionTime": "2026-01-02T04:00:00Z",
    }


def test_a_failure_names_task_and_reason() -> None:
    """The message has the reason and the task; Running and Successful become False."""
    outcome = RunOutcome(
        Stats(failures=1), (TaskFailure("web : Apply", "no rights", "main.yml:7"),), finished=T2
    )
    before = conditions.finished(conditions.started([], 1, T1), well(T1), 1, T1)
    found = by_type(conditions.finished(conditions.started(before, 1, T2), outcome, 1, T2))
    assert found["Failure"]["status"] == "True"
    assert found["Failure"]["reason"] == "Failed"
    assert found["Failure"]["message"] == "no rights (task 'web : Apply' at main.yml:7)"
    assert found["Failure"]["ansibleResult"]["failures"] == 1
    assert found["Running"]["status"] == "False"
    assert found["Successful"] | {"lastTransitionTime": ""} == {
        "type": "Successful",
        "status": "False",
        "reason": "",
        "message": "",
        "observedGeneration": 1,
        "lastTransitionTime": "",
    }


def test_a_steady_success_changes_nothing() -> None:
    """A second success that changed nothing leaves the very same conditions."""
    first = conditions.finished(conditions.started([], 1, T1), well(T1, changed=2), 1, T1)
    assert conditions.finished(first, well(T2), 1, T2) == first


def test_the_recap_of_a_run_with_changes_is_written() -> None:
    """A success that changed something has its recap shown, with the transition time kept."""
    first = conditions.finished(conditions.started([], 1, T1), well(T1), 1, T1)
    second = by_type(conditions.finished(first, well(T2, changed=1), 1, T2))
    assert second["Running"]["ansibleResult"]["changed"] == 1
    assert second["Running"]["lastTransitionTime"] == "2026-01-02T03:04:05Z"


def test_a_new_run_keeps_the_message_of_the_last_result() -> None:
    """During a run Successful is False but keeps the message of the last run."""
    before = conditions.finished(conditions.started([], 1, T1), well(T1), 1, T1)
    found = by_type(conditions.started(before, 1, T2))
    assert found["Successful"]["status"] == "False"
    assert found["Successful"]["message"] == "Last reconciliation succeeded"
    assert found["Running"]["reason"] == "Running"


def test_conditions_of_others_and_unknown_fields_survive() -> None:
    """Conditions of roles and users are kept, unknown fields included."""
    foreign = {"type": "Ready", "status": "True", "observedGeneration": 4, "note": "mine"}
    found = conditions.finished([foreign], well(T1), 1, T1)
    assert foreign in conditions.finished(conditions.started(found, 1, T2), well(T3), 1, T3)


def test_strict_schemas_get_a_reason_and_stay_steady() -> None:
    """With reasons filled in for metav1.Condition, a second success still changes nothing."""
    first = conditions.with_reasons(conditions.finished([], well(T1), 1, T1))
    assert by_type(first)["Failure"]["reason"] == "NotFailure"
    assert conditions.finished(first, well(T2), 1, T2) == first


def test_a_play_that_could_not_run_is_reported_without_recap() -> None:
    """An outcome without stats gives a Failure whose message is the reason alone."""
    outcome = RunOutcome(None, (TaskFailure("", "YAML parsing failed: main.yml:3"),), None, T1)
    found = by_type(conditions.finished([], outcome, 1, T1))
    assert found["Failure"]["message"] == "YAML parsing failed: main.yml:3"
    assert "ansibleResult" not in found["Failure"]
    assert "Running" not in found


def test_a_run_that_requeues_is_not_successful_yet() -> None:
    """As with ansible-operator Running stays; a new resource gets no other condition."""
    (running,) = conditions.finished(conditions.started([], 1, T1), asking(T2), 1, T2)
    assert running["status"] == "True"
    assert running["reason"] == "Running"
    assert running["message"] == ("Running reconciliation; the role asked to run again in 10s")
    assert running["lastTransitionTime"] == "2026-01-02T03:04:05Z"
    assert running["ansibleResult"]["ok"] == 3


def test_a_run_that_meets_objects_of_a_deleted_namesake_has_not_failed() -> None:
    """It is repeated after as long as the resource exists, between 5 seconds and 10 minutes."""
    former = TaskFailure("Write", "Deployment a/web is deleted first", "", FORMER_OWNER)
    body = {"metadata": {"creationTimestamp": "2026-01-02T03:59:00Z"}}

    def after(now: datetime, *failures: TaskFailure) -> RunOutcome:
        failed = RunOutcome(Stats(failures=1), failures, finished=now)
        return conditions.awaiting_deletion(failed, body)

    outcome = after(T2, former)
    assert (outcome.successful, outcome.requeue_after) == (True, timedelta(seconds=60))
    found = conditions.finished([], outcome, 1, T2)
    expected = "Running reconciliation; Deployment a/web is deleted first; run again in 1m0s"
    assert by_type(found)["Running"]["message"] == expected
    assert conditions.is_waiting(found)
    assert after(T3, former).requeue_after == timedelta(minutes=10)
    assert not after(T2, former, TaskFailure("Other", "no")).successful


def test_successful_is_false_until_a_run_does_not_ask() -> None:
    """Even where the run before was a success, and its start was not worth a write."""
    before = conditions.finished([], well(T1), 1, T1)
    waiting = conditions.finished(before, asking(T2), 1, T2)
    found = by_type(waiting)
    assert found["Successful"]["status"] == "False"
    assert found["Successful"]["message"] == "Last reconciliation succeeded"
    assert (found["Failure"]["status"], found["Failure"]["message"]) == ("False", "")
    assert conditions.is_waiting(waiting)
    assert not conditions.is_successful(waiting)
    after = conditions.finished(waiting, well(T3), 1, T3)
    assert by_type(after)["Successful"]["status"] == "True"
    assert by_type(after)["Running"]["message"] == "Awaiting next reconciliation"
    assert not conditions.is_waiting(after)


def test_a_resource_that_always_requeues_is_not_written_again() -> None:
    """Unchanged runs have equal conditions; changes and other times differ."""
    first = conditions.finished(conditions.started([], 1, T1), asking(T1, changed=2), 1, T1)
    assert conditions.finished(first, asking(T2), 1, T2) == first
    changed = by_type(conditions.finished(first, asking(T2, changed=1), 1, T2))
    assert changed["Running"]["ansibleResult"]["changed"] == 1
    later = by_type(conditions.finished(first, asking(T2, seconds=90), 1, T2))
    assert later["Running"]["message"].endswith("the role asked to run again in 1m30s")


def test_a_run_that_requeues_after_a_failure_has_not_failed() -> None:
    """The failure of the run before is over, and the resource is not Successful."""
    outcome = RunOutcome(Stats(failures=1), (TaskFailure("a", "no rights"),), finished=T1)
    before = conditions.finished(conditions.started([], 1, T1), outcome, 1, T1)
    found = by_type(conditions.finished(conditions.started(before, 1, T2), asking(T2), 1, T2))
    assert (found["Failure"]["status"], found["Failure"]["message"]) == ("False", "")
    assert found["Successful"]["status"] == "False"
    assert found["Running"]["status"] == "True"


def test_a_run_that_requeues_and_fails_is_a_failure() -> None:
    """A requeue of a play that fails afterwards does not count."""
    outcome = RunOutcome(
        Stats(failures=1), (TaskFailure("a", "no rights"),), timedelta(seconds=10), T2
    )
    found = by_type(conditions.finished(conditions.started([], 1, T1), outcome, 1, T2))
    assert found["Failure"]["status"] == "True"
    assert found["Running"]["status"] == "False"


YAML_ERROR = """YAML parsing failed: did not find expected ',' or '}'.
Origin: /roles/a/tasks/main.yml:5:11

...
4       apiVersion: v1
5       kind: ConfigMap
            ^ column 11"""
CHAINED = """Error loading tasks.
Origin: /roles/a/tasks/main.yml:1:3

1 - name: Bad
    ^ column 3

<<< caused by >>>

no module named 'x'
Origin: <unknown>
"""


def test_an_event_has_one_line() -> None:
    """The excerpt of a file is reduced to its position; the condition has the excerpt."""
    failures = (TaskFailure("", YAML_ERROR), TaskFailure("b", "line 1\n\n  line 2", "b.yml:3"))
    assert conditions.failure_line(failures, 300) == (
        "YAML parsing failed: did not find expected ',' or '}'. (/roles/a/tasks/main.yml:5:11); "
        "line 1; line 2 (task 'b' at b.yml:3)"
    )
    assert conditions.one_line(CHAINED) == (
        "Error loading tasks. (/roles/a/tasks/main.yml:1:3); <<< caused by >>>; "
        "no module named 'x' (<unknown>)"
    )
    assert YAML_ERROR in conditions.failure_text(failures)
    assert conditions.one_line("Not found.\nSearched:\n /a\n /b") == "Not found. Searched: /a; /b"
    unshown = "no\nOrigin: /a.yml:3:1\n\n(source not shown: file truncated)"
    assert conditions.one_line(unshown) == "no (/a.yml:3:1)"
    long = TaskFailure("", f"the role was not found in {'/roles:' * 99}{YAML_ERROR}")
    assert conditions.failure_line((long,), 300).endswith(" (/roles/a/tasks/main.yml:5:11)")
