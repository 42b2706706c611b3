"""Lines of past runs in the columns of `why`. Pure.

Ages are formatted as kubectl does; paths of tasks are relative to the project as far as their
directories show it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeAlias, TypeVar

from operator_runner.core.model import Json, ObjectRef
from operator_runner.core.texts import printable
from operator_runner.telemetry.runs.records import causes_text

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_FORMATS = (
    (2 * _MINUTE, 1, "s", 0, ""),
    (10 * _MINUTE, _MINUTE, "m", 1, "s"),
    (3 * _HOUR, _MINUTE, "m", 0, ""),
    (8 * _HOUR, _HOUR, "h", _MINUTE, "m"),
    (2 * _DAY, _HOUR, "h", 0, ""),
    (8 * _DAY, _DAY, "d", _HOUR, "h"),
)
"""Limits in seconds below which an age is written in a unit, and the unit of its remainder."""


def age(elapsed: timedelta) -> str:
    """Return the age in the column AGE of kubectl: `38s`, `5m3s`, `47m`, `3h20m`, `2d4h`, `9d`.

    See HumanDuration of k8s.io/apimachinery/pkg/util/duration. Below zero (clocks differ): `0s`.
    """
    seconds = max(0, int(elapsed.total_seconds()))
    for limit, size, unit, small_size, small_unit in _FORMATS:
        if seconds < limit:
            rest = seconds % size // small_size if small_size else 0
            return f"{seconds // size}{unit}" + (f"{rest}{small_unit}" if rest else "")
    return f"{seconds // _DAY}d"


_PLACE = re.compile(r"(?:(?<=' at )/[^\n]*:\d+(?=\)))|(?:(?<=\), )/[^\n]*:\d+$)")
"""The position of a task in a message: `(task 'Refuse' at /opt/roles/page/tasks/main.yml:14)`.

Or at the end of one about a preview: `task Migrate (command), /opt/roles/page/tasks/main.yml:17`.
"""


def short_path(path: str) -> str:
    """Return a path from its last `roles` or `playbooks` on."""
    parts = path.split("/")
    starts = [n for n, part in enumerate(parts) if part in {"roles", "playbooks"}]
    return "/".join(parts[starts[-1] :]) if starts else path


def with_short_paths(message: str) -> str:
    """Return the message of a failed run, or about a task, with a short path of the task."""
    return _PLACE.sub(lambda found: short_path(found[0]), message)


def place(task: Json) -> str:
    """Return `task 'Refuse' at roles/page/tasks/main.yml:14`, empty if unknown."""
    if not task.get("name"):
        return ""
    path = short_path(str(task.get("path") or ""))
    return f"task '{task['name']}'" + (f" at {path}" if path else "")


def message_of(run: Json) -> str:
    """Return the message of a failed run with its task, as Events have it."""
    message, task = str(run.get("message") or ""), place(run.get("failedTask") or {})
    return f"{message} ({task})" if message and task else message


_INDENT = " " * 4
_T = TypeVar("_T")
FAILED = "failed"
"""Outcome of a failed run."""
_COLUMNS = "{:<20}  {:>5}  {:>8}  {:<15}  {:<16}  {}"
_HEADER = ("ENDED", "AGE", "DURATION", "RESULT", "RUN")
RESOURCE, REPLICA = "RESOURCE", "REPLICA"
Widths: TypeAlias = tuple[int, int]
"""Of the columns RESOURCE and REPLICA."""


@dataclass(frozen=True, slots=True)
class RunLine:
    """One run, or several equal ones, as it is printed.

    `ended` is the end of the last one; `seconds` is None and `run_id` empty if unknown.
    """

    ended: datetime
    seconds: float | None
    outcome: str
    why: str
    note: str = ""
    count: int = 1
    run_id: str = ""
    replica: str = ""
    """Name of the Pod that ran it; empty if unknown."""
    ref: ObjectRef | None = None
    """The resource, if the history is that of several."""

    @classmethod
    def of(cls, run: Json, *, with_resource: bool = False) -> RunLine:
        """Return the line of a run that has ended: a record, or an Event as a record."""
        operator, resource = str(run.get("operator") or ""), run["resource"]
        pod = operator.rpartition("/")[2] if operator.startswith("Pod ") else ""
        return cls(
            datetime.fromisoformat(run["finished"]),
            run.get("seconds"),
            run["outcome"],
            causes_text(run),
            with_short_paths(message_of(run)),
            run.get("count", 1),
            run["id"],
            run.get("replica", pod),
            ObjectRef.of({**resource, "metadata": resource}) if with_resource else None,
        )

    def text(self, now: datetime, widths: Widths = (0, 0)) -> str:
        """Return the columns of `header`, and the error of a failed run below."""
        took = "" if self.seconds is None else f"{self.seconds:.1f} s"
        times = f" (x{self.count})" if self.count > 1 else ""
        line = _COLUMNS.format(
            self.ended.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            age(now - self.ended),
            took,
            self.outcome + times,
            self.run_id,
            _with_columns((self.place, self.replica), self.why, widths),
        ).rstrip()
        below = (_INDENT + text for text in self.note.splitlines())
        # Names of fields are those of the resource and may contain line breaks.
        return printable("\n".join((line.replace("\n", "\\n"), *below)))

    @property
    def place(self) -> str:
        """Namespace and name of the resource, if the history is that of several."""
        if self.ref is None:
            return ""
        return "/".join(filter(None, (self.ref.namespace, self.ref.name)))

    def as_json(self) -> Json:
        """Return the fields that are known, for `--output=json`."""
        fields = {
            "namespace": "" if self.ref is None else self.ref.namespace,
            "name": "" if self.ref is None else self.ref.name,
            "ended": self.ended.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "seconds": self.seconds,
            "outcome": self.outcome,
            "runID": self.run_id,
            "replica": self.replica,
            "cause": self.why,
            "message": self.note,
            "count": self.count,
        }
        return {name: value for name, value in fields.items() if value not in {None, ""}}


def header(widths: Widths = (0, 0)) -> str:
    """Return the names of the columns."""
    return _COLUMNS.format(*_HEADER, _with_columns((RESOURCE, REPLICA), "CAUSE", widths))


def _with_columns(cells: tuple[str, str], last: str, widths: Widths) -> str:
    shown = [f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True) if width]
    return "  ".join([*shown, last])


def with_repetitions(
    runs: Iterable[_T], key: Callable[[_T], tuple[str, str, str]]
) -> list[tuple[_T, int]]:
    """Return runs, newest first, with the number of failures that each is the last of.

    `key` returns resource, outcome and message. Failures with another run in between are several.
    """
    found: list[tuple[_T, int]] = []
    last: dict[str, int] = {}
    for run in runs:
        place, outcome, _ = key(run)
        at = last.get(place, -1)
        if outcome == FAILED and at >= 0 and key(found[at][0]) == key(run):
            found[at] = (found[at][0], found[at][1] + 1)
            continue
        last[place] = len(found)
        found.append((run, 1))
    return found
