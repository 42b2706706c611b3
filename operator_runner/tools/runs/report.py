"""Write the report of a run: one HTML page without scripts and external resources."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2

from operator_runner import __version__
from operator_runner.core.model import Json
from operator_runner.telemetry.printable import printable
from operator_runner.tools.runs.display import (
    causes,
    change_lines,
    duration,
    place,
    short_path,
    summary_lines,
    time_of,
)

_TEMPLATE = Path(__file__).with_name("report.html.j2")
_SMALLEST_PERCENT = 0.4
"""Width of a bar that is too short to be seen."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A row of the timeline: its place in percent of the whole width."""

    label: str
    detail: str
    status: str
    left: float
    width: float
    title: str


def report(run: Json, output: str) -> str:
    """Return the page. All texts of the run are escaped."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["printable"] = lambda value: printable(str(value))
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    return template.render(
        version=__version__,
        run=run,
        facts=[line.partition(":")[::2] for line in summary_lines(run)],
        causes=causes(run),
        tasks=timeline(run.get("tasks") or (), run, "started", _task_text),
        requests=timeline(run.get("requests") or (), run, "at", _request_text),
        changes=list(change_lines(run.get("changes") or ())),
        dropped=run.get("dropped") or {},
        output=output,
        log=run.get("log") or (),
    )


def timeline(entries: Iterable[Json], run: Json, key: str, text: Any) -> list[Bar]:
    """Return the rows of entries that begin at the time `key`; `text` gives their texts."""
    started = time_of(run.get("started"))
    total = float(run.get("seconds") or 0.0) or _latest(entries, key, started) or 1.0
    found = []
    for entry in entries:
        begun, seconds = time_of(entry.get(key)), float(entry.get("seconds") or 0.0)
        offset = (begun - started).total_seconds() if begun and started else 0.0
        left = min(max(100 * offset / total, 0.0), 100 - _SMALLEST_PERCENT)
        width = min(max(100 * seconds / total, _SMALLEST_PERCENT), 100 - left)
        label, detail, status = text(entry)
        title = f"{offset:+.3f} s, {duration(seconds)}"
        found.append(Bar(label, detail, status, round(left, 2), round(width, 2), title))
    return found


def _latest(entries: Iterable[Json], key: str, started: datetime | None) -> float:
    times = [time_of(each.get(key)) for each in entries]
    return max(((t - started).total_seconds() for t in times if t and started), default=0.0)


def _task_text(task: Json) -> tuple[str, str, str]:
    file = short_path(str(task.get("path") or ""))
    detail = " ".join(filter(None, (str(task.get("action") or ""), file)))
    return str(task.get("name") or place(task)), detail, str(task.get("result") or "")


def _request_text(request: Json) -> tuple[str, str, str]:
    status = request.get("status")
    failed = isinstance(status, int) and status >= 400  # noqa: PLR2004
    return f"{request.get('method')} {request.get('path')}", str(status), "failed" if failed else ""
