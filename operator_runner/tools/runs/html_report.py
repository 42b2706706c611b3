"""Write the report of a run: one HTML page without scripts and external resources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from operator_runner import __version__
from operator_runner.core.model import Json
from operator_runner.core.texts import printable
from operator_runner.tools.resources.summary import time_of
from operator_runner.tools.run_lines import place, short_path
from operator_runner.tools.runs.display import change_lines, duration, summary_lines

_TEMPLATE = Path(__file__).with_name("report.html.j2")
_STYLE = Path(__file__).with_name("static") / "run.css"
"""Used by the page of `operator-runner ui` too."""
_SMALLEST_PERCENT = 0.4
"""Width of a bar that is too short to be seen."""


@dataclass(frozen=True, slots=True)
class TimelineBar:
    """A row of the timeline: its place in percent of the whole width."""

    label: str
    detail: str
    status: str
    left: float
    width: float
    title: str


@dataclass(frozen=True, slots=True)
class RunReport:
    """The contents of the page of a run. Texts are not escaped, and have no control characters."""

    facts: list[tuple[str, str]]
    tasks: list[TimelineBar]
    requests: list[TimelineBar]
    changes: list[str]
    dropped: Mapping[str, int]
    output: str
    log: list[str]

    @classmethod
    def of(cls, run: Json, output: str) -> RunReport:
        """Return the report of a run, as `check_run` returns it, with its output."""
        lines = (line.partition(":") for line in summary_lines(run))
        return cls(
            facts=[(name, value.strip()) for name, _, value in lines],
            tasks=timeline(run.get("tasks") or (), run, "started", _task_text),
            requests=timeline(run.get("requests") or (), run, "at", _request_text),
            changes=list(change_lines(run.get("changes") or ())),
            dropped=run.get("dropped") or {},
            output=printable(output),
            log=[printable(line) for line in run.get("log") or ()],
        )


def report(run: Json, output: str) -> str:
    """Return the page of one run. All texts of the run are escaped."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(_TEMPLATE.read_text(encoding="utf-8")).render(
        title=printable(f"Run {run['id']}: {run['outcome']}"),
        run=RunReport.of(run, output),
        style=Markup(_STYLE.read_text(encoding="utf-8")),  # noqa: S704 (a file of the package)
        version=__version__,
    )


def timeline(entries: Iterable[Json], run: Json, key: str, text: Any) -> list[TimelineBar]:
    """Return the rows of entries that begin at the time `key`; `text` gives their texts."""
    started = time_of(run.get("started"))
    total = float(run.get("seconds") or 0.0) or _latest(entries, key, started) or 1.0
    found = []
    for entry in entries:
        begun, seconds = time_of(entry.get(key)), float(entry.get("seconds") or 0.0)
        offset = (begun - started).total_seconds() if begun and started else 0.0
        left = min(max(100 * offset / total, 0.0), 100 - _SMALLEST_PERCENT)
        width = min(max(100 * seconds / total, _SMALLEST_PERCENT), 100 - left)
        label, detail, status = map(printable, text(entry))
        title = f"{offset:+.3f} s, {duration(seconds)}"
        found.append(TimelineBar(label, detail, status, round(left, 2), round(width, 2), title))
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
    refusal = f" refused by the proxy: {request['refused']}" if request.get("refused") else ""
    name = f"{request.get('method')} {request.get('path')}"
    return name, f"{status}{refusal}", "failed" if failed else ""
