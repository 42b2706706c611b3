"""The outcome of a run from its events."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from operator_runner.ansible.outcome import OutcomeBuilder, reason_from_output
from operator_runner.core.model import Json, RunEvent, Stats, TaskFailure

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def task(name: str, kind: str = "runner_on_ok", **data: Any) -> RunEvent:
    return RunEvent(kind, {"task": name, "host": "localhost", **data})


def failed(name: str, **data: Any) -> RunEvent:
    return task(name, "runner_on_failed", res={"msg": f"{name} broke"}, **data)


def recap(**counts: int) -> RunEvent:
    data = {name: {"localhost": count} for name, count in counts.items()}
    return RunEvent("playbook_on_stats", data)


def collect(*events: RunEvent) -> OutcomeBuilder:
    builder = OutcomeBuilder()
    for event in events:
        builder.add(event)
    return builder


def test_a_play_that_ran_to_its_end_is_a_success() -> None:
    """The recap of localhost becomes the stats."""
    outcome = collect(task("a"), recap(ok=2, changed=1, skipped=3)).build(NOW, 0, "")
    assert outcome.successful
    assert outcome.stats == Stats(ok=2, changed=1, skipped=3)


def test_the_task_that_failed_is_named() -> None:
    """A failure carries the task, the message and the place."""
    outcome = collect(failed("a", task_path="r/main.yml:3"), recap(failures=1)).build(NOW, 2, "")
    assert outcome.failures == (TaskFailure("a", "a broke", "r/main.yml:3"),)


def test_a_failure_without_a_message_gets_a_default() -> None:
    """The contract has a text for it."""
    for result in (None, {}, {"msg": ""}, {"results": [{"failed": True}]}):
        events = (task("a", "runner_on_failed", res=result), recap(failures=1))
        message = collect(*events).build(NOW, 2, "").failures[0].message
        assert message == "unknown playbook failure"


@pytest.mark.parametrize(
    ("keyword", "result", "message"),
    [
        (
            "pods | length > 0",
            {"attempts": 2},
            "`until: pods | length > 0` is false after 2 attempts",
        ),
        ("", {"attempts": 1, "msg": ""}, "the condition of `until` is false after 1 attempt"),
        ("x", {"attempts": 2, "msg": "no route"}, "no route"),
        ("x == 1", {"failed_when_result": True, "attempts": 2}, "`failed_when: x == 1` is true"),
        ("x", {"failed_when_result": False}, "unknown playbook failure"),
        (
            "x == 1",
            {
                "failed_when_result": True,
                "msg": "Action failed: A 'failed_when' expression evaluated to 'True'.",
            },
            "`failed_when: x == 1` is true",
        ),
        (
            "x",
            {"msg": "One or more items failed", "results": [{"failed": True, "attempts": 3}]},
            "`until: x` is false after 3 attempts",
        ),
    ],
)
def test_the_condition_that_failed_a_task_is_named(
    keyword: str, result: dict[str, Any], message: str
) -> None:
    """If neither the module nor the role has a message."""
    builder = OutcomeBuilder(lambda path, _: keyword if path == "r/main.yml:3" else "")
    builder.add(task("a", "runner_on_failed", res=result, task_path="r/main.yml:3"))
    builder.add(recap(failures=1))
    assert builder.build(NOW, 2, "").failures[0].message == message


@pytest.mark.parametrize(
    ("found", "chosen", "reason"),
    [
        ("Forbidden", "NotReady", "NotReady"),
        ("Forbidden", "not a word", "Forbidden"),
        ("Forbidden", "", "Forbidden"),
        ("NotOwned", "NotReady", "NotOwned"),
    ],
)
def test_the_author_chooses_the_reason_of_a_failure(found: str, chosen: str, reason: str) -> None:
    """By a variable of the task or of a block; else, and if that is not a word, by the message.

    That an object belongs to somebody else is not about the task.
    """
    builder = OutcomeBuilder(variable_of=lambda path, name: chosen if name in path else "")
    result = {"msg": f"no ({found}, 403)"}
    builder.add(task("a", "runner_on_failed", res=result, task_path="failure_reason:1"))
    builder.add(recap(failures=1))
    (failure,) = builder.build(NOW, 2, "").failures
    assert (failure.reason, failure.code) == (reason, 403)


def test_a_playbook_whose_plays_have_no_hosts_is_a_failure() -> None:
    """It has done nothing; if another play has hosts it is a success."""
    unmatched = RunEvent("playbook_on_no_hosts_matched", {"play": "webservers"})
    (failure,) = collect(unmatched, recap()).build(NOW, 0, "").failures
    assert failure.message.startswith("no hosts matched")
    assert "`hosts: localhost`" in failure.message
    assert collect(unmatched, task("a"), recap(ok=1)).build(NOW, 0, "").successful
    assert collect(recap()).build(NOW, 0, "").successful


def test_a_rescued_failure_does_not_count() -> None:
    """ansible-runner does not mark rescued failures, so the recap decides."""
    assert collect(failed("a"), task("rescue"), recap(ok=1, rescued=1)).build(NOW, 0, "").successful


def test_an_ignored_failure_does_not_count() -> None:
    """A task with ignore_errors does not count."""
    assert (
        collect(failed("a", ignore_errors=True), recap(ok=1, ignored=1))
        .build(NOW, 0, "")
        .successful
    )


def test_only_the_failure_that_ended_the_play_counts() -> None:
    """Of a rescued and a final failure the final one is reported."""
    events = (failed("rescued"), task("rescue"), failed("final"), recap(rescued=1, failures=1))
    assert [f.task for f in collect(*events).build(NOW, 2, "").failures] == ["final"]


def test_the_items_of_a_loop_speak_for_their_task() -> None:
    """The message of a failed loop is that of its failed items, each once."""
    result = {
        "msg": "One or more items failed",
        "results": [
            {"failed": True, "msg": "no x"},
            {"msg": "fine"},
            {"failed": True, "msg": "no y"},
        ],
    }
    events = (task("loop", "runner_on_failed", res=result), recap(failures=1))
    assert collect(*events).build(NOW, 2, "").failures[0].message == "no x\nno y"


def test_a_censored_result_is_not_reported() -> None:
    """A failing no_log task reports only that its output is hidden."""
    text = "the output has been hidden due to the fact that 'no_log: true' was specified for this"
    events = (
        task("a", "runner_on_failed", res={"censored": f"{text} result"}),
        recap(failures=1),
    )
    assert collect(*events).build(NOW, 2, "").failures[0].message == (
        "output hidden by no_log; to see it, set `no_log: false` while no secret is in use"
    )


def test_a_host_out_of_reach_is_a_failure() -> None:
    """Unreachable hosts count like failed ones."""
    events = (task("a", "runner_on_unreachable", res={"msg": "no route"}), recap(dark=1))
    assert collect(*events).build(NOW, 4, "").failures[0].message == "no route"


def test_no_recap_is_a_failure_with_the_output_as_reason() -> None:
    """The reason of a play that never started is taken from its output."""
    output = (
        "\x1b[0;31m[ERROR]: couldn't resolve module/action 'x'\x1b[0m\r\nOrigin: main.yml:2\r\n"
    )
    outcome = collect().build(NOW, 4, output)
    assert not outcome.successful
    assert outcome.failures[0].message == "couldn't resolve module/action 'x'\nOrigin: main.yml:2"


def test_a_limit_of_the_machine_is_named_without_the_traceback() -> None:
    """ansible-core reports it as an internal error of its own."""
    output = (
        "[ERROR]: Unexpected Exception, this is probably a bug: can't start new thread\n\n"
        'Traceback (most recent call last):\n  File "x.py", line 1, in start\n'
        "AnsibleError: Unexpected Exception, this is probably a bug: can't start new thread\n"
    )
    message = collect().build(NOW, 250, output).failures[0].message
    assert message.startswith("can't start new thread; no more processes or threads")
    assert "pids.max" in message


def test_a_bad_exit_status_is_a_failure_even_with_a_clean_recap() -> None:
    """A recap without failures does not outweigh a failing ansible-playbook."""
    outcome = collect(task("a"), recap(ok=1)).build(NOW, 250, "ERROR! out of memory")
    assert outcome.failures[0].message == "out of memory"


def test_an_ended_run_names_its_current_task() -> None:
    """A run that is ended at its timeout reports its current task."""
    begun = RunEvent("playbook_on_task_start", {"name": "wait for it"})
    outcome = collect(begun).build_aborted(NOW, "timeout")
    assert outcome.failures == (TaskFailure("wait for it", "timeout", reason="Timeout"),)


def requeue(period: Any, kind: str = "runner_on_ok", action: str = "") -> RunEvent:
    action = action or "operator_sdk.util.requeue_after"
    return task("come back", kind, task_action=action, res={"period": period}, task_path="r.yml:3")


def test_the_first_requeue_after_counts_and_the_play_continues() -> None:
    """The period is a Go duration; later tasks still decide the outcome."""
    outcome = collect(requeue("1h30m"), requeue("5s"), task("after"), recap(ok=3)).build(NOW, 0, "")
    assert outcome.successful
    assert outcome.requeue_after == timedelta(minutes=90)


def test_requeue_after_is_read_by_its_short_name_and_in_a_loop() -> None:
    """With `collections:` the action has no namespace; a loop requests it in its items."""
    for event in (requeue("5s", action="requeue_after"), requeue("5s", "runner_item_on_ok")):
        assert collect(event, recap(ok=1)).build(NOW, 0, "").requeue_after == timedelta(seconds=5)


def test_tasks_that_did_not_run_requeue_nothing() -> None:
    """Neither a failed task, nor one that was skipped, nor another module with a period counts."""
    events = (
        requeue("5s", "runner_on_failed", "requeue_after"),
        requeue("5s", "runner_on_skipped"),
        requeue("5s", action="my.own.module"),
        task("no_log", task_action="requeue_after", res={"censored": "hidden"}),
        recap(ok=1, rescued=1),
    )
    assert collect(*events).build(NOW, 0, "").requeue_after is None


def test_zero_leaves_the_ordinary_period() -> None:
    """A period of zero must not run the resource without a pause."""
    assert collect(requeue("0s"), recap(ok=1)).build(NOW, 0, "").requeue_after is None


def test_an_unreadable_period_fails_the_run() -> None:
    """A collection of the user's own may let it through; the reason names task and hint."""
    outcome = collect(requeue("30"), recap(ok=1)).build(NOW, 0, "")
    text = (
        'requeue_after: time: missing unit in duration "30"; '
        "write hours, minutes and seconds, such as 1h30m"
    )
    assert outcome.failures == (TaskFailure("come back", text, "r.yml:3"),)


def test_details_of_a_module_are_reported() -> None:
    """Kubernetes modules give the API's answer in `error`: a text, a dict or a number."""
    for error, expected in (
        ("no such field", "Bad: no such field"),
        ({"status": 404, "message": "not found"}, "Bad: not found"),
        ({"status": 404, "reason": "Not Found"}, "Bad: Not Found"),
        ("Bad", "Bad"),
        (409, "Bad"),
    ):
        result = {"msg": "Bad", "error": error}
        events = (task("a", "runner_on_failed", res=result), recap(failures=1))
        assert collect(*events).build(NOW, 2, "").failures[0].message == expected


def test_output_without_a_marked_error_gives_its_last_lines() -> None:
    """Where nothing is marked as an error, the end of the output is the best there is."""
    assert reason_from_output("\n".join(str(n) for n in range(30))).splitlines()[-1] == "29"
    assert reason_from_output("") == ""


def reporting(action: str, **data: Any) -> RunEvent:
    return task("report", task_action=action, res={"changed": True}, **data)


def test_tasks_that_report_are_not_changes() -> None:
    """Metrics, status, Events and requeue requests are counted beside Ansible's recap."""
    events = (
        reporting("operator_sdk.util.osdk_metric"),
        reporting("k8s_status"),
        reporting("kube_event", resolved_action="operator_sdk.util.k8s_event"),
        reporting("operator_sdk.util.requeue_after"),
        recap(ok=5, changed=5),
    )
    stats = collect(*events, reporting("kubernetes.core.k8s")).build(NOW, 0, "").stats
    assert stats == Stats(ok=5, changed=5, reports=4)
    assert stats.changes == 1


def test_a_report_counts_once() -> None:
    """Neither an unchanged report, nor the items of a loop, nor other hosts are counted."""
    events = (
        task("same", task_action="k8s_status", res={"changed": False}),
        task("item", "runner_item_on_ok", task_action="k8s_status", res={"changed": True}),
        reporting("k8s_status"),
        RunEvent("runner_on_ok", {"host": "b", "task_action": "k8s_status", "res": {"changed": 1}}),
        recap(ok=2, changed=1),
    )
    stats = collect(*events).build(NOW, 0, "").stats
    assert stats is not None
    assert (stats.reports, stats.changes) == (1, 0)


def test_a_play_that_cannot_be_loaded_is_distinguished() -> None:
    """Ansible printed an error before the first play; any other failure may pass by itself."""
    error = "[ERROR]: the role 'nope' was not found\nOrigin: /roles/a/meta/main.yml:1:16\n"
    play = RunEvent("playbook_on_play_start", {})
    assert collect().build(NOW, 1, error).load_failed
    assert not collect(play).build(NOW, 1, error).load_failed
    assert not collect().build(NOW, 137, "Killed\n").load_failed
    assert not collect(failed("a"), recap(failures=1)).build(NOW, 2, error).load_failed


def test_a_command_has_its_return_code_and_its_last_line() -> None:
    """Of stderr, else of stdout; nothing that `no_log` hides."""
    command = {"msg": "non-zero return code", "rc": 2, "stdout": "so far\n"}
    for result, expected in (
        (command | {"stderr": "first\ncat: /x: No such file\n"}, " 2: cat: /x: No such file"),
        (command | {"stderr": ""}, " 2: so far"),
        ({"msg": "non-zero return code", "rc": 2}, " 2"),
        ({"msg": "It exited with a non-zero return code.", "rc": 2}, " 2"),
    ):
        events = (task("a", "runner_on_failed", res=result), recap(failures=1))
        (failure,) = collect(*events).build(NOW, 2, "").failures
        assert (
            failure.message.removeprefix("It exited with a ") == f"non-zero return code{expected}"
        )


def test_a_program_that_cannot_be_started_is_named() -> None:
    """Without its arguments; a failure without a command keeps its message."""
    ended = {"msg": "Error executing command.", "rc": 2}
    for result, expected in (
        (ended | {"cmd": "helm list --token=x"}, "cannot run helm: No such file or directory"),
        (ended, "Error executing command."),
    ):
        events = (task("a", "runner_on_failed", res=result), recap(failures=1))
        (failure,) = collect(*events).build(NOW, 2, "").failures
        assert failure.message == expected


FORBIDDEN = (
    'deployments.apps "a" is forbidden: User "u" cannot patch resource "deployments" in API group'
    ' "apps" in the namespace "b"'
)


CURE = "add the rule `patch deployments.apps`: `operator-runner rbac` derives it"


@pytest.mark.parametrize(
    ("result", "message", "reason"),
    [
        (
            {"msg": '"Deployment" "web": Timed out waiting on resource'},
            "timed out waiting for Deployment web",
            "Timeout",
        ),
        (
            {
                "msg": "Resource update timed out",
                "result": {"kind": "Deployment", "metadata": {"name": "web"}},
            },
            "timed out waiting for Deployment web",
            "Timeout",
        ),
        ({"msg": "Resource scaling timed out"}, "Resource scaling timed out", "Timeout"),
        (
            {
                "msg": "Task failed: Action failed: Unknown error.",
                "message": "Could not find or access 'a.yml'\nSearched in:\n\t/p/vars/a.yml",
            },
            "Could not find or access 'a.yml'\nSearched in:\n\t/p/vars/a.yml",
            "TaskFailed",
        ),
        (
            {"msg": "Task failed: Unexpected AnsibleActionFail error: Could not find 'a.txt'"},
            "Could not find 'a.txt'",
            "TaskFailed",
        ),
        (
            {"msg": json.dumps({"kind": "Status", "message": FORBIDDEN, "reason": "Forbidden"})},
            f"{FORBIDDEN} (Forbidden); {CURE}",
            "TaskFailed",
        ),
    ],
)
def test_a_message_has_cause_and_cure(result: Json, message: str, reason: str) -> None:
    """Without words of Ansible about its own steps."""
    events = (task("a", "runner_on_failed", res=result), recap(failures=1))
    (failure,) = collect(*events).build(NOW, 2, "").failures
    assert (failure.message, failure.reason) == (message, reason)


def test_each_item_of_a_loop_is_readable() -> None:
    """An answer of the API is shortened in each of them, and equal ones are one."""
    status = '{"kind":"Status","message":"no","reason":"Forbidden","code":403}'
    text = "403\nReason: Forbidden\nHTTP response headers: %s\nHTTP response body: " + status
    items = [{"failed": True, "msg": text % headers} for headers in ("a", "b")]
    items.append({"failed": True, "msg": "no y"})
    events = (task("loop", "runner_on_failed", res={"results": items}), recap(failures=1))
    (failure,) = collect(*events).build(NOW, 2, "").failures
    assert failure.message == "no (Forbidden, 403)\nno y"
