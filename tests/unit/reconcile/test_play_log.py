"""Lines in the log and on stdout about a run, in each mode."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import structlog.testing

from operator_runner.core.model import GVK, ObjectRef, RunEvent, RunOutcome, Stats, TaskFailure
from operator_runner.core.settings import AnsibleSettings
from operator_runner.reconcile.play import PlayLog

REF = ObjectRef(GVK("shop.example.com", "v1", "Web"), "ns", "a")
TASKS = AnsibleSettings()
TERMINAL = replace(TASKS, framed=False)
LINES = replace(TERMINAL, log_events="lines")
BROKEN = RunOutcome(None, (TaskFailure("Break", "no"),))
WELL = RunOutcome(Stats(ok=2))
RULE = "-------------------------------------------------------------------------------"
OPENING = "\n--------------------------- Ansible Task StdOut -------------------------------\n"

EVENTS = (
    RunEvent("playbook_on_play_start", {"name": "localhost"}, "\r\nPLAY [localhost] ***"),
    RunEvent(
        "playbook_on_task_start",
        {"name": "web : Make it", "task": "Make it", "task_action": "copy"},
        "\r\nTASK [web : Make it] ***\r\ntask path: /r/main.yml:1",
    ),
    RunEvent(
        "runner_on_ok",
        {"task": "Make it", "task_action": "copy", "res": {"changed": True}, "duration": 0.5},
        "changed: [localhost]",
    ),
    RunEvent(
        "playbook_on_task_start",
        {"name": "web : Say it", "task": "Say it", "task_action": "ansible.builtin.debug"},
        "\r\nTASK [web : Say it] ***",
    ),
    RunEvent(
        "runner_on_ok",
        {"task": "Say it", "task_action": "debug", "task_args": "", "res": {"msg": "hello"}},
        'ok: [localhost] => {"msg": "hello"}',
    ),
    RunEvent("runner_item_on_ok", {"task": "Each", "task_action": "copy"}, "ok: (item=1)"),
    RunEvent(
        "runner_on_failed",
        {"task": "Break", "task_action": "fail", "task_path": "/r/main.yml:9", "res": {}},
        "\x1b[0;31mfatal: [localhost]: FAILED!\x1b[0m",
    ),
    RunEvent("playbook_on_stats", {"ok": {}}, "\r\nPLAY RECAP ***\r\nlocalhost : failed=1"),
)
STATS = f"""
----- {"Ansible Task Status Event StdOut (shop.example.com/v1, Kind=Web, a/ns)":>70} -----


PLAY RECAP ***
localhost : failed=1

----------
"""


def logged(
    ansible: AnsibleSettings, *, raw: bool = False, outcome: RunOutcome = WELL
) -> list[dict[str, Any]]:
    """Return the log lines of a run; its output is on stdout."""
    with structlog.testing.capture_logs() as lines:
        play_log = PlayLog(REF, "run", ansible, raw=raw)
        for event in EVENTS:
            play_log(event)
        play_log.end(outcome)
    return [dict(line) for line in lines]


def test_tasks_are_framed_as_existing_projects_know_it(capsys: pytest.CaptureFixture[str]) -> None:
    """Starts, debug output, items and failures are framed, the recap is a block, in order."""
    logged(TASKS)

    def frame(text: str) -> str:
        return f"{OPENING}{text}\n\n{RULE}\n"

    stars = "******************************** "
    assert capsys.readouterr().out == (
        frame("\nTASK [web : Make it] ***\ntask path: /r/main.yml:1")
        + frame(f'\n TASK [Say it] {stars}\nok: [localhost] => {{"msg": "hello"}}')
        + frame(f"\n TASK [Each] {stars}\nok: (item=1)")
        + frame(f"\n TASK [Break] {stars}\nfatal: [localhost]: FAILED!")
        + STATS
    )


def test_lines_have_the_messages_and_keys_of_ansible_operator() -> None:
    """Messages and keys are those that users of existing projects search for."""
    lines = logged(TASKS)

    assert [(line["event"], line["log_level"]) for line in lines] == [
        ("[playbook task start]", "info"),
        ("[playbook task]", "info"),
        ("[playbook debug]", "info"),
        ("[playbook task failed]", "warning"),
        ("Ansible-runner exited successfully", "info"),
    ]
    start, _, debug, failed, _ = lines
    assert start["EventData.Name"] == "web : Make it"
    assert (start["gvk"], start["job"]) == ("shop.example.com/v1, Kind=Web", "run")
    assert start["event_type"] == "playbook_on_task_start"
    assert debug["EventData.TaskArgs"] == ""
    assert failed["EventData.Task"] == "Break"
    assert failed["EventData.FailedTaskPath"] == "/r/main.yml:9"


def test_a_failed_run_does_not_exit_successfully() -> None:
    """The line is there only for runs that went well."""
    lines = logged(TASKS, outcome=BROKEN)

    assert all("exited successfully" not in line["event"] for line in lines)


def test_raw_output_replaces_frames(capsys: pytest.CaptureFixture[str]) -> None:
    """With a verbosity there is the output of ansible-playbook, and the block."""
    lines = logged(TASKS, raw=True)

    raw = "".join(f"{event.stdout}\n" for event in EVENTS[:-1]).replace("\r", "")
    raw = raw.replace("\x1b[0;31m", "").replace("\x1b[0m", "")
    assert capsys.readouterr().out == raw + STATS
    assert [line["event"] for line in lines] == ["Ansible-runner exited successfully"]


def test_a_terminal_shows_a_line_for_each_task(capsys: pytest.CaptureFixture[str]) -> None:
    """People read along: no frames, no blocks."""
    lines = logged(TERMINAL)

    assert capsys.readouterr().out == ""
    shown = [line["event"] for line in lines if line["log_level"] != "debug"]
    assert shown == ["[playbook task]", "[playbook debug]", "[playbook task failed]"]
    assert all("EventData.Name" not in line and "job" not in line for line in lines)


@pytest.mark.parametrize("mode", [TERMINAL, LINES])
def test_the_failure_that_ends_a_run_is_one_line(mode: AnsibleSettings) -> None:
    """The line about the run has it, with the message; failures that are rescued have their own."""
    assert all("failed" not in line["event"] for line in logged(mode, outcome=BROKEN))

    failed = RunEvent("runner_on_failed", {"task": "Try it", "task_action": "fail", "res": {}})
    ignored = replace(failed, data={**failed.data, "task": "Ask", "ignore_errors": True})
    rescue = RunEvent("playbook_on_task_start", {"name": "web : Repair it", "task": "Repair it"})
    with structlog.testing.capture_logs() as lines:
        play_log = PlayLog(REF, "run", mode, raw=False)
        for event in (ignored, failed, rescue, replace(failed, data={"task": "Repair it"})):
            play_log(event)
        play_log.end(BROKEN)
    shown = [(line["task"], line["result"]) for line in lines if line["log_level"] == "warning"]
    assert shown == [("Ask", "failed (ignored)"), ("Try it", "failed")]


def test_lines_have_no_text_between_them(capsys: pytest.CaptureFixture[str]) -> None:
    """With --ansible-log-events=lines output that is asked for is a line too, without colours."""
    logged(LINES)
    lines = logged(replace(LINES, debug_logs=True), raw=True)

    assert capsys.readouterr().out == ""
    texts = [line["output"] for line in lines if line["event"] == "[playbook output]"]
    assert texts[-2].endswith("localhost : failed=1")
    assert "\nfatal: [localhost]: FAILED!\n" in texts[-1]


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        ({"msg": "hello", "changed": False}, ["hello"]),
        ({"msg": ["a", 1]}, ["['a', 1]"]),
        (
            {"size": 3, "changed": False, "failed": False, "_ansible_verbose_always": True},
            ["size: 3"],
        ),
        ({"names": {"a": [None]}, "failed_when_result": False}, ['names: {"a": [null]}']),
        ({"name": "web"}, ["name: web"]),
        ({"censored": "the output has been hidden"}, ["the output has been hidden"]),
        (
            {
                "msg": "All items completed",
                "results": [
                    {"msg": "item 1", "item": 1, "ansible_loop_var": "item"},
                    {
                        "size": 3,
                        "each": 2,
                        "ansible_loop_var": "each",
                        "ansible_loop": {"index": 1},
                    },
                ],
            },
            ["item 1", "size: 3"],
        ),
    ],
)
def test_a_terminal_shows_the_output_of_debug(result: dict[str, Any], shown: list[str]) -> None:
    """Of `msg` and of `var`, and of each item of a loop; frames have the items."""
    event = RunEvent("runner_on_ok", {"task": "Say it", "task_action": "debug", "res": result}, "")
    with structlog.testing.capture_logs() as lines:
        PlayLog(REF, "run", TERMINAL, raw=False)(event)
    assert [line["output"] for line in lines] == shown
    with structlog.testing.capture_logs() as lines:
        PlayLog(REF, "run", TASKS, raw=False)(event)
    assert len(lines) == 1


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        ({"stderr": "usage: tool\ntool: no such host\n", "rc": 1}, "tool: no such host"),
        ({"stderr": "x" * 1000}, f"{'x' * 157} [cut: 765 of 1000 characters] {'x' * 78}"),
        ({"stderr": "secret", "censored": "the output has been hidden"}, None),
        ({"stderr": "secret", "_ansible_no_log": True}, None),
        ({"stderr": " \n"}, None),
        ({"stderr": 5}, None),
    ],
)
def test_a_terminal_shows_the_last_line_of_stderr(
    result: dict[str, Any], shown: str | None
) -> None:
    """Of a command, whose message is that its return code is not zero; frames have all of it."""
    data = {"task": "Run it", "task_action": "command", "res": result}
    with structlog.testing.capture_logs() as lines:
        for mode in (TERMINAL, TASKS):
            play_log = PlayLog(REF, "run", mode, raw=False)
            play_log(RunEvent("runner_on_failed", data, "fatal"))
            play_log.end(WELL)
    failed = [line for line in lines if line["log_level"] == "warning"]
    assert [line.get("stderr") for line in failed] == [shown, None]


def test_a_terminal_shows_raw_output_where_asked(capsys: pytest.CaptureFixture[str]) -> None:
    """The recap is part of it there."""
    logged(TERMINAL, raw=True)

    out = capsys.readouterr().out
    assert out.startswith("\nPLAY [localhost] ***\n")
    assert out.endswith("localhost : failed=1\n")


def test_nothing_leaves_the_recap(capsys: pytest.CaptureFixture[str]) -> None:
    """The block with the recap is always there, as in ansible-operator."""
    lines = logged(replace(TASKS, log_events="nothing"), raw=True)

    assert capsys.readouterr().out == STATS
    assert [line["event"] for line in lines] == ["Ansible-runner exited successfully"]


def test_everything_has_all_events_with_their_data(capsys: pytest.CaptureFixture[str]) -> None:
    """Each event is a line with its data, and a frame with its output."""
    lines = logged(replace(TASKS, log_events="everything"), raw=True)

    events = [line for line in lines if line["event"] == "[playbook event]"]
    assert [line["event_type"] for line in events] == [event.kind for event in EVENTS]
    assert [line["EventData"] for line in events] == [event.data for event in EVENTS]
    out = capsys.readouterr().out
    assert out.count(OPENING) == len(EVENTS)
    assert out.endswith(STATS)


@pytest.mark.parametrize("log_events", ["nothing", "tasks", "everything"])
def test_debug_logs_add_the_whole_output(
    capsys: pytest.CaptureFixture[str], log_events: str
) -> None:
    """ANSIBLE_DEBUG_LOGS prints all of it after the run, in every mode."""
    logged(replace(TASKS, debug_logs=True, log_events=log_events))

    out = capsys.readouterr().out
    title = f"----- {'Ansible Debug Result (shop.example.com/v1, Kind=Web, a/ns)':>70} -----"
    _, _, block = out.partition(title)
    assert block.startswith("\n\n\nPLAY [localhost] ***\n\nTASK [web : Make it] ***\n")
    assert block.endswith("localhost : failed=1\n\n----------\n")
    assert "\nchanged: [localhost]\n" in block


def test_secrets_do_not_reach_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    """The output goes through the same redaction as the log."""
    event = RunEvent("runner_item_on_ok", {"task": "x"}, "Authorization: Bearer abcdefghijklmnop")

    PlayLog(REF, "run", TASKS, raw=False)(event)
    PlayLog(REF, "run", TASKS, raw=True)(event)

    out = capsys.readouterr().out
    assert out.count("Bearer [redacted]") == 2
    assert "abcdefghijklmnop" not in out


def test_output_that_is_not_text_ends_no_run(capsys: pytest.CaptureFixture[str]) -> None:
    """A module may print any bytes; Ansible hands them on as lone surrogates."""
    event = RunEvent("runner_item_on_ok", {"task": "x"}, "b\udcffd")

    PlayLog(REF, "run", TASKS, raw=True)(event)

    assert capsys.readouterr().out == "b\\udcffd\n"
