"""Turn the record of a run into spans. Pure, and without OpenTelemetry.

Names of attributes are those of its semantic conventions, of the collector's receiver of Kubernetes
events (`k8s.object.*`) and of Ansible's callback plugin `opentelemetry` (`ansible.task.*`). Of
requests there is only a template of the path: a path may have the name of a Secret. The interface
of traces is here too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol, TypeAlias

from operator_runner.core.model import Cause, Json, ObjectRef
from operator_runner.core.texts import redact, truncated
from operator_runner.telemetry.runs.records import LOCALHOST


class ReconcileTrace(Protocol):
    """The trace of one reconcile."""

    @property
    def exemplar(self) -> Mapping[str, str] | None:
        """Labels of exemplars in metrics; None if the trace is not exported."""

    def end(self, result: str, error: str | None = None) -> None:
        """Record the result; `error` is the message of a failure, None for others."""


class Traces(Protocol):
    """Records traces; no method raises or blocks."""

    def reconcile(
        self, ref: ObjectRef, causes: Sequence[Cause], waited: float
    ) -> AbstractContextManager[ReconcileTrace]:
        """Trace the reconcile of the block, which was due `waited` seconds ago.

        Log lines of the block have the ids of the trace.
        """

    def run_environment(self, run_id: str) -> Mapping[str, str]:
        """Begin the span of a run of the current reconcile; return variables that refer to it."""

    def run_ended(self, document: Json) -> None:
        """End the span of that run, and add what its record has."""


Attributes: TypeAlias = Mapping[str, str | int | Sequence[str]]

RESULT = "operator_runner.result"
RUN_ID = "operator_runner.run.id"
_TEXT_BYTES = 500
_SECRET_NAME = re.compile(r"""\b([Ss]ecrets?) (?:"[^"]*"|'[^']*'|[\w.-]+/[\w.-]+)""")
"""Names of Secrets as in causes, and as the API server and kubectl write them: `secrets "db"`."""
_DISCOVERY = re.compile(r"/(version|api(/v1)?|apis(/[\w.-]+){0,2})/?")
_NOT_FOUND, _FIRST_ERROR = 404, 400
_MILLISECOND = 1_000_000


class RequestPath(Protocol):
    """A parsed path of the Kubernetes API; texts are empty for what it does not have."""

    @property
    def template(self) -> str:
        """The path with `{namespace}` and `{name}` in place of both."""

    @property
    def namespace(self) -> str:
        """The namespace of the object."""

    @property
    def group(self) -> str:
        """The API group, empty for the core group."""

    @property
    def resource(self) -> str:
        """The plural name of the kind."""

    @property
    def name(self) -> str:
        """The name of the object."""


PathParser: TypeAlias = Callable[[str], RequestPath | None]


@dataclass(frozen=True, slots=True)
class SpanData:
    """A span; times are nanoseconds since the epoch, `error` is None if there was none."""

    name: str
    start: int
    end: int
    attributes: Attributes
    error: str | None = None
    is_request: bool = False
    children: Sequence[SpanData] = field(default=())


def run_attributes(document: Json) -> Attributes:
    """Return the attributes of the span of a run."""
    dropped: Mapping[str, int] = document.get("dropped") or {}
    counts = {
        "operator_runner.run.changed_tasks": document.get("changed"),
        "operator_runner.run.dropped_tasks": dropped.get("tasks"),
        "operator_runner.run.dropped_requests": dropped.get("requests"),
    }
    found = {name: count for name, count in counts.items() if count is not None}
    return {RUN_ID: document["id"], RESULT: document["outcome"], **found}


def run_error(document: Json) -> str | None:
    """Return the message of a failed run, without secrets; None for other runs."""
    return public_text(document.get("message") or "") if document["outcome"] == "failed" else None


def public_text(text: str) -> str:
    """Return a text as spans may have it: without secrets and names of Secrets, and limited."""
    return truncated(_SECRET_NAME.sub(r"\1", str(redact(text))), _TEXT_BYTES)


def spans_of_run(document: Json, parse: PathParser, server: Attributes) -> list[SpanData]:
    """Return the spans of tasks, each with its requests, then requests of no known task.

    `server` are the attributes of the API server.
    """
    tasks = [each for each in document.get("tasks") or () if {"started", "ended"} <= each.keys()]
    times = [(_nanoseconds(each["started"]), _nanoseconds(each["ended"])) for each in tasks]
    requests: list[list[SpanData]] = [[] for _ in tasks]
    others: list[SpanData] = []
    for request in document.get("requests") or ():
        span = _request_span(request, parse, server)
        index = _task_of(span, times)
        (others if index is None else requests[index]).append(span)
    spans = [
        _task_span(task, each, document, children)
        for task, each, children in zip(tasks, times, requests, strict=True)
    ]
    return [*spans, *others]


def _task_of(request: SpanData, times: Sequence[tuple[int, int]]) -> int | None:
    """Return the index of the only task that was in progress during a request, None if unknown.

    Times have milliseconds: one of two tasks in sequence may seem to end when the other starts.
    """
    found = [n for n, (start, end) in enumerate(times) if start <= request.start <= end]
    if len(found) > 1:
        found = [n for n in found if request.end <= times[n][1] + _MILLISECOND]
    return found[0] if len(found) == 1 else None


def _task_span(
    task: Json, times: tuple[int, int], document: Json, requests: Sequence[SpanData]
) -> SpanData:
    path, _, line = str(task.get("path") or "").rpartition(":")
    attributes: dict[str, str | int] = {
        "ansible.task.name": task["name"],
        "ansible.task.module": task["action"],
        "ansible.task.host.name": task.get("host", LOCALHOST),
        "ansible.task.host.status": task["result"],
    }
    if path and line.isdigit():
        attributes |= {"code.file.path": path, "code.line.number": int(line)}
    error = None
    if task["result"] in {"failed", "unreachable"}:
        failed: Json = document.get("failedTask") or {}
        is_reason = (failed.get("name"), failed.get("path")) == (task["name"], task.get("path"))
        error = public_text(document.get("message") or "") if is_reason else task["result"]
    return SpanData(task["name"] or "task", *times, attributes, error, children=requests)


def _request_span(request: Json, parse: PathParser, server: Attributes) -> SpanData:
    method, status = request["method"], int(request["status"])
    attributes: dict[str, str | int | Sequence[str]] = {
        **server,
        "http.request.method": method,
        "http.response.status_code": status,
    }
    name, path = method, parse(request["path"])
    if path is not None:
        name = f"{method} {path.template}"
        attributes["url.template"] = path.template
        if path.namespace:
            attributes["k8s.namespace.name"] = path.namespace
        if path.name and (path.group, path.resource) != ("", "secrets"):
            attributes["k8s.object.name"] = path.name
    elif _DISCOVERY.fullmatch(request["path"]):
        attributes["url.template"] = request["path"]
        name = f"{method} {request['path']}"
    error = None
    # Roles ask whether an object exists.
    if status >= _FIRST_ERROR and (method, status) != ("GET", _NOT_FOUND):
        error = attributes["error.type"] = str(status)
    start = _nanoseconds(request["at"])
    end = start + round(request["seconds"] * 1e9)
    return SpanData(name, start, end, attributes, error, is_request=True)


def _nanoseconds(time: str) -> int:
    return round(datetime.fromisoformat(time).timestamp() * 1000) * _MILLISECOND
