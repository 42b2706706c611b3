"""When a field that a role changes is reported, and when that ends."""

from __future__ import annotations

from typing import Any

import pytest

from operator_runner.core.model import GVK, Cause, FieldChange, ObjectRef, RunEvent, Trigger
from operator_runner.reconcile.idempotence import (
    IdempotenceCheck,
    RepeatedChange,
    TaskTimes,
    Verdict,
    runs_needed,
)

OWNER = ObjectRef(GVK("example.com", "v1", "Foo"), "default", "owner")
SECRET = ObjectRef(GVK("", "v1", "Secret"), "default", "db")
QUIET = Verdict()


def task(name: str, start: str, end: str) -> RunEvent:
    return RunEvent("runner_on_ok", {"task": name, "start": start, "end": end})


TASKS = TaskTimes()
TASKS(task("Deploy", "1970-01-01T00:00:01", "1970-01-01T00:00:02"))
TASKS(task("Password", "1970-01-01T00:00:05+00:00", "1970-01-01T00:00:06+00:00"))


def change(before: str, after: str, path: str = "data.password", at: float = 5.5) -> FieldChange:
    return FieldChange(SECRET, path, before.encode(), after.encode(), at)


class Runs:
    """Successful runs of one resource, each with its changes."""

    def __init__(self) -> None:
        self._check = IdempotenceCheck(tasks=TASKS)

    def __call__(self, *changes: FieldChange, needed: int = 2) -> Verdict:
        self._check.needed = needed
        return self._check.run_ended(changes)


def found(*paths: str, task: str = "Password") -> Verdict:
    return Verdict(
        (RepeatedChange(task, SECRET, paths or ("data.password",)),), is_idempotent=False
    )


def test_two_unprompted_runs_with_a_change_are_reported() -> None:
    """Task, object and field are named, once until it ends."""
    runs = Runs()
    assert runs(needed=0) == QUIET  # the creation
    assert runs(change("1", "2")) == QUIET
    assert runs(change("2", "3")) == found()
    assert runs(change("3", "4")) == Verdict(is_idempotent=False)


def test_a_run_without_the_change_ends_it() -> None:
    """Whatever led to that run; two more runs with the change are reported again."""
    for needed in (0, 2):
        runs = Runs()
        runs(change("1", "2"))
        runs(change("2", "3"))
        assert runs(needed=needed) == QUIET
        assert runs(change("3", "4")) == QUIET
        assert runs(change("4", "5")) == found()


def test_a_role_that_converges_in_two_runs_is_not_reported() -> None:
    """The second run adds what the status of the created objects showed; then nothing changes."""
    runs = Runs()
    assert runs(needed=0) == QUIET
    assert runs(change("", "2")) == QUIET
    assert runs() == QUIET
    assert runs(change("2", "3")) == QUIET


def test_requested_changes_do_not_count() -> None:
    """A spec that is edited again and again changes a field again and again."""
    runs = Runs()
    for number in range(5):
        assert runs(change(f"{number}", f"{number + 1}"), needed=0) == QUIET
    runs(change("5", "6"))
    runs(change("6", "7"), needed=0)
    assert runs(change("7", "8")) == QUIET


def test_a_prompted_run_does_not_report_again() -> None:
    """It changes the field too, so the role is as it was."""
    runs = Runs()
    runs(change("1", "2"))
    runs(change("2", "3"))
    assert runs(change("3", "4"), needed=0) == Verdict(is_idempotent=False)
    assert runs(change("4", "5")) == Verdict(is_idempotent=False)


def test_a_field_that_another_controller_reverts_is_not_reported() -> None:
    """Each run finds another value than the one that the run before left."""
    runs = Runs()
    for _ in range(5):
        assert runs(change("theirs", "ours")) == QUIET


def test_each_field_is_counted_on_its_own() -> None:
    """Fields that join later are reported when their own time has come."""
    runs = Runs()
    runs(change("1", "2"))
    assert runs(change("2", "3"), change("a", "b", "data.key")) == found()
    assert runs(change("3", "4"), change("b", "c", "data.key")) == found("data.key")


def test_fields_of_one_task_and_object_are_one_finding() -> None:
    """Fields of another task are another one."""
    runs = Runs()
    late = ("data.a", "data.b")
    runs(*(change("1", "2", path) for path in late), change("1", "2", "data.c", 1.5))
    verdict = runs(*(change("2", "3", path) for path in late), change("2", "3", "data.c", 1.5))
    assert verdict.findings == (
        RepeatedChange("Password", SECRET, late),
        RepeatedChange("Deploy", SECRET, ("data.c",)),
    )


def test_two_tasks_that_revert_each_other_are_reported() -> None:
    """The object ends as it began, and is written twice in every run."""
    runs = Runs()
    twice = (change("1", "2", at=1.5), change("2", "1"))
    assert runs(*twice) == QUIET
    assert runs(*twice) == found()


def test_only_the_first_fields_are_kept() -> None:
    """A role that changes a thousand fields in every run does not fill the memory."""
    runs = Runs()
    runs(*(change("1", "2", f"data.{number}") for number in range(1000)))
    (finding,) = runs(*(change("2", "3", f"data.{number}") for number in range(1000))).findings
    assert len(finding.paths) == 16


def test_the_message_names_task_field_object_and_hint() -> None:
    """Values are in none of them."""
    paths = tuple(f"data.{number}" for number in range(6))
    assert str(RepeatedChange("Password", SECRET, paths)) == (
        "Not idempotent: task 'Password' changes data.0, data.1, data.2, data.3 and 2 more of "
        "Secret default/db in every run, though nothing asked for it; keep the value that the "
        "object has, or generate it once"
    )


@pytest.mark.parametrize(
    ("seconds", "name"), [(0.5, ""), (1.5, "Deploy"), (3.0, "Deploy"), (5.5, "Password")]
)
def test_a_write_belongs_to_the_task_of_its_time(seconds: float, name: str) -> None:
    """One between two tasks is of an asynchronous one: the task before it is named."""
    assert TASKS.at(seconds) == name


def echo(detail: str) -> Cause:
    return Cause(Trigger.DEPENDENT, detail, SECRET)


@pytest.mark.parametrize(
    ("causes", "needed"),
    [
        ([Cause(Trigger.START)], 2),
        ([Cause(Trigger.PERIOD, "1 s")], 2),
        ([Cause(Trigger.REQUEUE, "1 s")], 5),
        ([Cause(Trigger.PERIOD), Cause(Trigger.REQUEUE)], 5),
        ([echo("Secret default/db changed by x (data.a)")], 2),
        ([echo("Deployment default/web became ready")], 5),
        ([Cause(Trigger.DEPENDENT, "Deployment default/web became ready")], 0),
        ([Cause(Trigger.DEPENDENT, "ConfigMap default/other deleted")], 0),
        *(
            ([Cause(Trigger.PERIOD), Cause(trigger)], 0)
            for trigger in (
                *(Trigger.SPEC, Trigger.ANNOTATION, Trigger.DELETION, Trigger.REFERENCE),
                *(Trigger.RETRY, Trigger.PROJECT),
            )
        ),
    ],
)
def test_only_unprompted_runs_count(causes: list[Cause], needed: int) -> None:
    """Runs by timers and own writes are unprompted; a role that waits may report its progress."""

    def is_echo(cause: Cause) -> bool:
        return cause.about == SECRET

    assert runs_needed(causes, is_echo) == needed


def test_events_without_times_are_left_out() -> None:
    """Only ends of tasks have them."""
    tasks = TaskTimes()
    data: dict[str, Any] = {"task": "a"}
    tasks(RunEvent("playbook_on_task_start", data))
    tasks(RunEvent("runner_on_ok", data))
    assert tasks.at(1.0) == ""
