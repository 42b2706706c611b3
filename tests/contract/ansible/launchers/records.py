"""All results of a run, masked so that two runs of the same play can be compared."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from operator_runner.core.model import Json, RunOutcome, TaskFailure
from tests.contract.ansible.launchers.masks import Masks

_ENDS = {
    "runner_on_ok",
    "runner_on_failed",
    "runner_on_skipped",
    "runner_on_unreachable",
    "runner_item_on_ok",
    "runner_item_on_failed",
    "runner_item_on_skipped",
}
_SHOWN = 600
"""Characters of each value that a difference shows."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True)
class Record:
    """Results of one run: its outcome, events and artifacts, and the files of the play."""

    outcome: RunOutcome
    events: list[Json]
    artifacts: Mapping[str, str]
    """The content of each file below artifacts/<run id>/, by its path there."""
    files: Mapping[str, str]
    """Mode and content of each file that the play left in its directory `out`."""

    def kinds(self, *, task: str = "") -> list[str]:
        """Return the kinds of events in order, of one task or of all."""
        return [event["event"] for event in self.events if task in ("", task_of(event))]

    def tasks(self) -> list[str]:
        """Return the names of tasks and handlers in the order in which they began."""
        starts = {"playbook_on_task_start", "playbook_on_handler_task_start"}
        return [task_of(event) for event in self.events if event["event"] in starts]

    def ends(self, task: str) -> list[tuple[str, Json]]:
        """Return host and result of each end of a task, items of its loop included."""
        return [
            (event["event_data"]["host"], event["event_data"].get("res") or {})
            for event in self.events
            if event["event"] in _ENDS and task_of(event) == task
        ]

    def result(self, task: str) -> Json:
        """Return the result of a task that one host ran once; the last of a loop is the sum."""
        ends = self.ends(task)
        assert ends, f"no end of task {task!r}; there are {self.tasks()}"
        return ends[-1][1]

    @property
    def stdout(self) -> str:
        """The output of the run, without colours."""
        return _COLOUR.sub("", self.artifacts["stdout"]).replace("\r", "")

    @property
    def exit_status(self) -> int:
        """The exit status of ansible-playbook, as the artifact `rc` has it."""
        return int(self.artifacts["rc"])


def read_record(outcome: RunOutcome, artifacts: Path, out: Path, masks: Masks) -> Record:
    """Return the record of a run that has ended."""
    assert (artifacts / "events.jsonl").exists(), f"the run did not start: {outcome}"
    lines = (artifacts / "events.jsonl").read_text().splitlines()
    events = [masks.value(json.loads(line)) for line in lines]
    return Record(
        outcome=_masked_outcome(outcome, masks),
        events=events,
        artifacts={
            str(path.relative_to(artifacts)): _artifact(path, masks)
            for path in sorted(artifacts.rglob("*"))
            if path.is_file() and path.name != "events.jsonl"
        },
        files={
            masks.text(str(path.relative_to(out))): _file(path, masks)
            for path in sorted(out.rglob("*"))
        },
    )


def differences(names: tuple[str, str], first: Record, second: Record) -> str:
    """Return what differs, for people; an empty text if nothing does."""
    one, other = ([_outline(event) for event in record.events] for record in (first, second))
    if one != other:
        lines = difflib.unified_diff(one, other, *names, lineterm="")
        return "\n".join(
            ["events differ:", *lines, _side_by_side(names, first.stdout, second.stdout)]
        )
    parts = [
        *_unequal("outcome", first.outcome, second.outcome),
        *_unequal("files", first.files, second.files),
        *(
            found
            for left, right in zip(first.events, second.events, strict=True)
            for found in _unequal(f"event {left.get('counter')} ({_outline(left)})", left, right)
        ),
        *_unequal("artifacts", first.artifacts, second.artifacts),
    ]
    # A line more in one event moves the numbers of lines in all that follow.
    causes = [part for part in parts if not part[0].endswith(("start_line", "end_line"))]
    return "\n".join(
        f"{place}\n{_side_by_side(names, *values)}" for place, *values in causes or parts
    )


def _unequal(place: str, one: Any, other: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in sorted({*one, *other}):
            yield from _unequal(f"{place}.{key}", one.get(key, _ABSENT), other.get(key, _ABSENT))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from _unequal(f"{place}[{number}]", left, right)
    elif repr(one) != repr(other):  # nan is not itself
        yield place, one, other


class _Absent:
    def __repr__(self) -> str:
        return "<absent>"


_ABSENT = _Absent()


def _side_by_side(names: tuple[str, str], one: Any, other: Any) -> str:
    if isinstance(one, str) and isinstance(other, str) and "\n" in one + other:
        lines = difflib.unified_diff(one.splitlines(), other.splitlines(), *names, "", "", 1, "")
        return "\n".join(f"    {_short(line)}" for line in lines)
    return f"    {names[0]}: {_short(one)}\n    {names[1]}: {_short(other)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text)} characters)"


def _outline(event: Json) -> str:
    data = event.get("event_data") or {}
    item = (data.get("res") or {}).get("_ansible_item_label", "")
    words = (event["event"], task_of(event), data.get("host"), item)
    return " ".join(_short(word) if word is item else str(word) for word in words if word)


def task_of(event: Json) -> str:
    return str((event.get("event_data") or {}).get("task") or "")


def _masked_outcome(outcome: RunOutcome, masks: Masks) -> RunOutcome:
    failures = tuple(
        TaskFailure(failure.task, masks.text(failure.message), masks.text(failure.path))
        for failure in outcome.failures
    )
    return replace(outcome, started=None, finished=None, failures=failures)


def _artifact(path: Path, masks: Masks) -> str:
    text = path.read_text()
    if path.name == "command":
        return json.dumps(masks.value(json.loads(text)), indent=1)
    if path.parent.name == "fact_cache":
        facts = json.loads(json.loads(text)["__payload__"])
        return json.dumps(masks.value(facts), indent=1)
    return masks.text(text)


def _file(path: Path, masks: Masks) -> str:
    mode = oct(path.lstat().st_mode)
    if path.is_symlink():
        return f"{mode} -> {masks.text(str(path.readlink()))}"
    return f"{mode} {masks.text(path.read_text(errors='replace'))}" if path.is_file() else mode
