"""Text of runs for a terminal. Pure: the time is an argument."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from operator_runner.core.model import GVK, Json
from operator_runner.core.texts import printable, shortened
from operator_runner.telemetry.runs.records import causes_text
from operator_runner.tools.resources.cluster import kind_name
from operator_runner.tools.resources.summary import time_of
from operator_runner.tools.run_lines import age, place, short_path

HEADER = ("RUN", "RESOURCE", "RESULT", "AGE", "DURATION", "CAUSE")
WIDE_HEADER = (*HEADER, "STARTED", "FAILED TASK", "OPERATOR", "MESSAGE")
TASK_HEADER = ("STARTED", "DURATION", "RESULT", "TASK", "FILE")
REQUEST_HEADER = ("AT", "DURATION", "STATUS", "REQUEST")
_CAUSE_CHARACTERS = 70
_INDENT = "  "


def row(
    run: Json, now: datetime, *, is_wide: bool = False, with_group: bool = False
) -> tuple[str, ...]:
    """Return the columns of a run; `with_group` is as in `resource_name`."""
    found = (
        str(run.get("id") or "-"),
        resource_name(run, with_group=with_group),
        result(run),
        since(run.get("finished") or run.get("started"), now),
        duration(run.get("seconds")),
        cut(causes_text(run)) or "-",
    )
    if not is_wide:
        return found
    task = run.get("failedTask") or {}
    return (
        *found,
        str(run.get("started") or "-"),
        place(task) or "-",
        str(run.get("operator") or "-"),
        " ".join(str(run.get("message") or "-").split()),
    )


def resource_name(run: Json, *, with_group: bool = False) -> str:
    """Return `page/home`, or `page.debug.example.com/home`."""
    resource = run.get("resource") or {}
    kind = str(resource.get("kind"))
    if with_group:
        kind = kind_name(GVK.of(str(resource.get("apiVersion")), kind))
    return f"{kind.lower()}/{resource.get('name')}"


def result(run: Json) -> str:
    """Return the outcome as a SummaryState of `get`."""
    return str(run.get("outcome") or "-").capitalize()


def summary_lines(run: Json) -> Iterator[str]:
    """Yield the first lines about a run."""
    resource = run.get("resource") or {}
    gvk = GVK.of(str(resource.get("apiVersion")), str(resource.get("kind")))
    where = resource.get("namespace")
    ended = f" after {duration(run.get('seconds'))}" if "seconds" in run else ""
    changed = f", {run['changed']} changed" if run.get("changed") else ""
    task = run.get("failedTask") or {}
    fields = {
        "Run": run.get("id"),
        "Resource": f"{kind_name(gvk)}/{resource.get('name')}",
        "Namespace": where,
        "Operator": run.get("operator"),
        "Result": f"{run.get('outcome')}{ended}{changed}",
        "Started": run.get("started"),
        "Causes": causes_text(run),
        "Trace": run.get("traceID"),
        "Failed task": place(task),
        "Message": run.get("message"),
    }
    for name, value in fields.items():
        if value:
            text = printable(str(value)).strip().replace("\n", "\n" + " " * 13)
            yield f"{name + ':':<13}{text}"


def task_row(task: Json, started: datetime | None) -> tuple[str, ...]:
    """Return the columns of a task; its start is relative to that of the run."""
    begun = time_of(task.get("started"))
    offset = "-"
    if begun is not None and started is not None:
        offset = f"+{max(0.0, (begun - started).total_seconds()):.1f} s"
    return (
        offset,
        duration(task.get("seconds")),
        str(task.get("result") or "-"),
        str(task.get("name") or task.get("action") or "-"),
        short_path(str(task.get("path") or "-")),
    )


def change_lines(changes: Sequence[Json]) -> Iterator[str]:
    """Yield the changed fields as a diff, by object and task."""
    heading = ""
    for change in changes:
        about = change.get("object") or {}
        name = f"{str(about.get('kind')).lower()}/{about.get('name')}"
        task = f" (task '{change['task']}')" if change.get("task") else ""
        if (new := f"{name}{task}") != heading:
            heading = new
            yield _line(new)
        yield from (f"{_INDENT}{line}" for line in diff_lines(change))


def diff_lines(change: Json) -> Iterator[str]:
    """Yield the lines of one changed field; values that may be secret are not known."""
    path = change.get("path")
    if change.get("hidden") or not ({"before", "after"} & change.keys()):
        yield _line(f"~ {path}: (not shown)")
        return
    if change.get("before"):
        yield _line(f"- {path}: {change['before']}")
    if change.get("after"):
        yield _line(f"+ {path}: {change['after']}")


def request_row(request: Json) -> tuple[str, ...]:
    """Return the columns of a request to the API server; a refusal is that of the proxy."""
    refusal = f" (refused by the proxy: {request['refused']})" if request.get("refused") else ""
    return (
        str(request.get("at") or "-"),
        duration(request.get("seconds")),
        str(request.get("status") or "-"),
        f"{request.get('method')} {request.get('path')}{refusal}",
    )


def duration(seconds: Any) -> str:
    """Return `1.2 s`, `-` if unknown."""
    return f"{seconds:.1f} s" if isinstance(seconds, int | float) else "-"


def since(time: Any, now: datetime) -> str:
    """Return the age of a time, `-` if unknown."""
    found = time_of(time)
    return "-" if found is None else age(now - found)


def cut(text: str) -> str:
    """Shorten a text for a column."""
    return shortened(text, _CAUSE_CHARACTERS)


def _line(text: str) -> str:
    return printable(text).replace("\n", "\\n")
