"""Write the report of a run, or of many: one HTML page without scripts and external resources.

A report of many has the runs of the operators of a cluster, or of artifacts in work dirs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import click
import jinja2
from markupsafe import Markup

from operator_runner import __version__
from operator_runner.ansible.history import details_of, recorded_resources
from operator_runner.core.errors import ApiError, NotFound
from operator_runner.core.model import Json
from operator_runner.telemetry.redaction import printable
from operator_runner.telemetry.runs.received import check_run
from operator_runner.telemetry.runs.record import causes_text, matches
from operator_runner.tools.kubeconfig import Kubeconfig
from operator_runner.tools.operator_api.discovery import Operators
from operator_runner.tools.resources.output import EXIT_UNANSWERED
from operator_runner.tools.run_lines import short_path
from operator_runner.tools.runs.display import (
    change_lines,
    cut,
    duration,
    place,
    resource_name,
    summary_lines,
    time_of,
)
from operator_runner.tools.runs.listing import newest, warn_invalid, without_repetitions
from operator_runner.tools.runs.run_details import open_operators, read_output, read_run

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


@dataclass(frozen=True, slots=True)
class _Section:
    """One of many runs on a page."""

    heading: str
    is_open: bool
    run: RunReport


def report(run: Json, output: str) -> str:
    """Return the page of one run. All texts of the run are escaped."""
    title = printable(f"Run {run['id']}: {run['outcome']}")
    return _render(title=title, run=RunReport.of(run, output))


def report_of_runs(found: Sequence[tuple[Json, str]]) -> str:
    """Return the page of many runs, in this order, each with its output. Escape all texts."""
    runs = [run for run, _ in found]
    failed = sum(run.get("outcome") == "failed" for run in runs)
    return _render(
        title=f"{len(runs)} runs, {failed} failed",
        overview=timeline(runs, _span(runs), "started", _run_text),
        sections=[_section(run, output) for run, output in found],
    )


def _section(run: Json, output: str) -> _Section:
    heading = printable(f"{resource_name(run)}, {run['id']}: {run['outcome']}")
    return _Section(heading, run["outcome"] == "failed", RunReport.of(run, output))


def _render(**values: Any) -> str:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    style = Markup(_STYLE.read_text(encoding="utf-8"))  # noqa: S704 (a file of the package)
    defaults = {"version": __version__, "run": None, "overview": (), "sections": ()}
    return template.render({**defaults, "style": style, **values})


def _span(runs: Sequence[Json]) -> Json:
    """Return start and duration of the time in which all runs were."""
    times = [
        (begun, begun + timedelta(seconds=float(run.get("seconds") or 0.0)))
        for run in runs
        if (begun := time_of(run.get("started")))
    ]
    if not times:
        return {}
    first, last = min(start for start, _ in times), max(end for _, end in times)
    return {"started": first.isoformat(), "seconds": (last - first).total_seconds()}


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


def _run_text(run: Json) -> tuple[str, str, str]:
    where = str((run.get("resource") or {}).get("namespace") or "")
    name = f"{where}: {resource_name(run)}" if where else resource_name(run)
    return name, cut(causes_text(run)), str(run.get("outcome") or "")


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


_MAX_OUTPUT_CHARACTERS = 64 * 1024
"""Length of the output of each run, its end: a report has hundreds of runs."""


async def report_operators(
    html: Path, kubeconfig: Kubeconfig, namespace: str | None, limit: int
) -> int:
    """Write the report of runs that operators keep; return the exit status. Raises ApiError."""
    async with open_operators(kubeconfig, namespace, None) as (_, operators):
        if not operators.clients:
            reason = printable(operators.reason)
            click.echo(
                f"Error: no operator answers: {reason}; if one has ended on this machine, add"
                " --work-dir",
                err=True,
            )
            return EXIT_UNANSWERED
        query = {"namespace": namespace} if namespace else {}
        params = {**query, "limit": str(limit)}
        listed = newest(without_repetitions(await operators.collect("/runs", check_run, params)))
        warn_invalid(operators)
        found = [await _details(operators, each) for each in listed[:limit]]
    return await _write(html, found)


async def report_artifacts(
    html: Path, work_dirs: Sequence[Path], namespace: str | None, limit: int
) -> int:
    """Write the report of runs whose artifacts are kept; return the exit status. Raises OSError."""
    query = {"namespace": namespace} if namespace else {}

    def read() -> list[tuple[Json, str]]:
        found = {run["id"]: (run, text) for each in work_dirs for run, text in _recorded(each)}
        chosen = [run for run, _ in found.values() if matches(run["resource"], query)]
        return [found[each["id"]] for each in newest(chosen)[:limit]]

    return await _write(html, await asyncio.to_thread(read))


def _recorded(work_dir: Path) -> Iterator[tuple[Json, str]]:
    """Yield the valid records below a work dir, each with its output."""
    for folder in recorded_resources(work_dir).values():
        for document, text in details_of(folder):
            try:
                yield check_run(document), text
            except ValueError as error:
                reason = printable(f"{folder}: {error}")
                click.echo(f"Warning: left out an invalid record in {reason}", err=True)


async def _details(operators: Operators, listed: Json) -> tuple[Json, str]:
    """Return a run and its output; what was listed if the operator no longer keeps it."""
    client = next((each for each in operators.clients if each.name == listed["operator"]), None)
    if client is None:
        return listed, ""
    try:
        run = await read_run(client, str(listed["id"]))
        return run, await read_output(client, str(listed["id"]))
    except NotFound:
        return listed, ""
    except ApiError as error:
        operators.drop(client, error)
        click.echo(f"Warning: {printable(str(error))}", err=True)
        return listed, ""


async def _write(html: Path, found: Sequence[tuple[Json, str]]) -> int:
    cut = [(run, text[-_MAX_OUTPUT_CHARACTERS:]) for run, text in reversed(found)]
    # Utf-8 even where the locale has another encoding.
    await asyncio.to_thread(html.write_text, report_of_runs(cut), encoding="utf-8")
    failed = sum(run["outcome"] == "failed" for run, _ in found)
    click.echo(f"Wrote {html}: {len(found)} runs, {failed} failed")
    return 0
