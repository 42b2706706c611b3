"""Comparable parts of a record, if the whole depends on chance or on the launcher. Pure.

Each view has the reason why the rest cannot be equal.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from operator_runner.core.model import Json, TaskFailure
from tests.contract.ansible.launchers.records import Record

_HEADER = re.compile(r"\r?\n?(TASK|RUNNING HANDLER) \[.*\] \**(\r?\n)?")
_COUNTED = {"counter", "start_line", "end_line", "uuid", "parent_uuid"} | {
    f"{part}_uuid" for part in ("playbook", "play", "task")
}
_TRANSPORT = re.compile(
    r"(<\S+> (EXEC|PUT|ESTABLISH) |Using module file |Pipelining is enabled|"
    r"Loading collection ansible\.builtin)"
)

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_ROLE_PATHS = re.compile(r"(?<=was not found in )\S+")
_DATA_DIR = re.compile(
    r"/[\w./<>-]*/(?:operator-runner-data/(?:<temp>|tmp\w{8})/run"
    r"|case\d+/\w+/example\.com/v1/Foo/default/\w+)(?=/|\b)"
)
_PROJECT = re.compile(r"<data>/project|/[\w./<>-]*/case\d+/site(?=/|\b)")
_POLL = re.compile(r"ASYNC POLL ")


def by_host(record: Record) -> Record:
    """Sort what hosts did side by side, whose order is chance: each host's events stay in order.

    Counters and ids follow from that order, and go with it; so do the headers of tasks, which
    are printed whenever the reported task changes.
    """

    def place(event: Json) -> str:
        return str((event.get("event_data") or {}).get("host") or "")

    events = [_bare(event) for event in sorted(record.events, key=place)]
    stdout = _HEADER.sub("", record.artifacts["stdout"])
    lines = "\n".join(sorted(filter(None, stdout.splitlines())))
    return replace(record, events=events, artifacts={**record.artifacts, "stdout": lines})


def without_transport(record: Record) -> Record:
    """Leave out the lines of -vvvv about the start of modules, in which launchers differ.

    These are lines of their own: shells, copied files, the files of modules. What tasks do and
    say with -vvvv stays; counters of events and lines go.
    """
    return _without(record, "verbose", _TRANSPORT)


def without_polls(record: Record) -> Record:
    """Leave out polls of an async task that was not done yet: their number is random."""
    return _without(record, "runner_on_async_poll", _POLL)


def _without(record: Record, kind: str, line: re.Pattern[str]) -> Record:
    """Leave out events of a kind that print such a line, and those lines."""
    events = [
        _bare(event)
        for event in record.events
        if event["event"] != kind or (kind == "verbose" and not line.search(event["stdout"]))
    ]
    stdout = record.artifacts["stdout"].splitlines()
    lines = "\n".join(each for each in stdout if not line.search(each))
    return replace(record, events=events, artifacts={**record.artifacts, "stdout": lines})


def _bare(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _bare(part) for key, part in value.items() if key not in _COUNTED}
    if isinstance(value, list):
        return [_bare(part) for part in value]
    return _HEADER.sub("", value) if isinstance(value, str) else value


def without_place(record: Record) -> Record:
    """Leave out where a play ran: a Pod has a copy of the project, and no terminal.

    Its output has no colours, ansible-runner's stream no empty lines, and warnings are events of
    their own. Of the artifacts, both have the output and the events.
    """
    outcome = record.outcome
    failures = tuple(
        TaskFailure(each.task, _moved(each.message), _moved(each.path)) for each in outcome.failures
    )
    events = [_moved(_bare(event)) for event in record.events if event["event"] != "verbose"]
    for event in events:
        del event["stdout"]
        data = event.get("event_data") or {}
        if "playbook" in data:
            data["playbook"] = PurePath(data["playbook"]).name
    return replace(
        record,
        outcome=replace(outcome, failures=failures),
        events=events,
        artifacts={"stdout": _moved(record.artifacts["stdout"])},
        files={name: _moved(text) for name, text in record.files.items()},
    )


def _moved(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _moved(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_moved(part) for part in value]
    if not isinstance(value, str):
        return value
    text = _PROJECT.sub("<project>", _DATA_DIR.sub("<data>", _COLOUR.sub("", value)))
    lines = _ROLE_PATHS.sub("<paths>", text).splitlines()
    return "\n".join(line for line in lines if line)
