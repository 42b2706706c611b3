"""Records of runs: `RunRecorder` builds one, `RunStore` keeps them, limited by number and by size.

A record is the JSON document that the API serves. Texts and lists in it are limited. It never has
results of tasks with `no_log`, content of Secrets, or values that such a task may have written.
Times are arguments of its functions.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog

from operator_runner.core.model import (
    Cause,
    FieldChange,
    Json,
    ObjectRef,
    RunApiRequest,
    RunEvent,
    RunOutcome,
)
from operator_runner.core.texts import redact, truncated

MAX_TASKS, MAX_WRITES, MAX_CHANGES, MAX_REQUESTS, MAX_LOG_LINES = 200, 200, 64, 200, 200
"""Entries of a record; what is beyond is counted in `dropped`."""
MAX_OUTPUT_BYTES = 256 * 1024
"""Limit for the output that is kept in memory while the run is in progress."""
_TEXT_BYTES = 500
_MESSAGE_BYTES = 2048
_RESULTS = {
    "runner_on_ok": "ok",
    "runner_on_failed": "failed",
    "runner_on_unreachable": "unreachable",
    "runner_on_skipped": "skipped",
}
_HIDDEN_ARGS = "the output has been hidden due to the fact that 'no_log: true'"
"""Start of the arguments of a task with no_log in ansible-runner's events."""
_TASK_START = "playbook_on_task_start"
RUNNING = "running"
"""Outcome of a run in progress, and result of its current task."""
LOCALHOST = "localhost"
"""The host of roles; tasks on others have its name."""
_DETAILS = ("tasks", "writes", "changes", "requests", "log", "dropped")
"""Fields of a record that its summary lacks."""


@dataclass(slots=True)
class RunRecorder:
    """Collects what is known of a run; `document` returns it at any time."""

    run_id: str
    ref: ObjectRef
    uid: str
    causes: Sequence[Cause]
    started: datetime
    trace_id: str = ""
    """The trace that has the run; empty if it is not exported."""
    _tasks: list[Json] = field(default_factory=list)
    _writes: list[Json] = field(default_factory=list)
    _changes: list[tuple[FieldChange, Json]] = field(default_factory=list)
    _requests: list[Json] = field(default_factory=list)
    _log: list[str] = field(default_factory=list)
    _dropped: dict[str, int] = field(default_factory=dict)
    _output: list[str] = field(default_factory=list)
    _output_bytes: int = 0
    _hidden_since: float | None = None
    _is_remote: bool = False
    _last_end: float = 0.0
    _last_ends: dict[str, float] = field(default_factory=dict)
    _current: Json = field(default_factory=dict)
    _end: Json = field(default_factory=dict)

    @property
    def is_running(self) -> bool:
        """Whether the run is in progress."""
        return not self._end

    @property
    def _is_in_task(self) -> bool:
        return self.is_running and bool(self._current)

    @property
    def output(self) -> Sequence[str]:
        """The output so far, one text for each event; censored, and limited in length."""
        return self._output

    def on_event(self, event: RunEvent) -> None:
        """Add an event of the run, in order."""
        data = event.data
        start, end = _seconds(data.get("start")), _seconds(data.get("end"))
        if _is_hidden(data) and self._hidden_since is None:
            # A background process of this task may write until the end of the run.
            self._hidden_since = self._last_end if start is None else start
        self._is_remote = self._is_remote or event.is_remote
        if event.stdout and self._output_bytes < MAX_OUTPUT_BYTES:
            text = truncated(event.stdout, MAX_OUTPUT_BYTES)
            self._output.append(text)
            self._output_bytes += len(text)
        if event.kind == _TASK_START:
            self._current = _current_task(data, self._last_end)
        if (result := _RESULTS.get(event.kind)) is None:
            return
        self._current = {}
        start, overlap = self._without_overlap(str(data.get("host") or LOCALHOST), start, end)
        if end is not None:
            self._last_end = max(self._last_end, end)
        self._append("tasks", self._tasks, MAX_TASKS, _task(data, result, start, end, overlap))

    def on_write(self, ref: ObjectRef, verb: str) -> None:
        """Add a write of an object; repeated ones are recorded once."""
        entry = {"object": object_json(ref), "verb": verb}
        if entry not in self._writes:
            self._append("writes", self._writes, MAX_WRITES, entry)

    def on_change(self, change: FieldChange) -> None:
        """Add a field that the run has changed."""
        about = {"object": object_json(change.ref), "at": _time(change.at), "path": change.path}
        self._append("changes", self._changes, MAX_CHANGES, (change, about))

    def on_request(self, request: RunApiRequest) -> None:
        """Add a request to the API server."""
        entry = {
            "method": request.method,
            "path": truncated(request.path, _TEXT_BYTES),
            "status": request.status,
            "at": _time(request.at),
            "seconds": round(request.seconds, 3),
        }
        if request.refusal:
            entry["refused"] = truncated(request.refusal, _TEXT_BYTES)
        self._append("requests", self._requests, MAX_REQUESTS, entry)

    def on_log(self, line: str) -> None:
        """Add a line of the operator's log, without secrets."""
        self._append("log", self._log, MAX_LOG_LINES, truncated(line, _TEXT_BYTES))

    def end(self, outcome: RunOutcome | None, now: datetime) -> None:
        """Record the end of the run; `outcome` is None for a cancelled one."""
        name = "cancelled"
        failure = outcome.failures[0] if outcome is not None and outcome.failures else None
        if outcome is not None:
            name = "succeeded" if outcome.successful else "failed"
        stats = outcome.stats if outcome is not None else None
        if stats is None:
            # Events of the last task may be missing, and it may have no_log.
            self._hide_since(self._last_end)
        if outcome is not None and outcome.started is not None:
            self.started, now = outcome.started, outcome.finished or now
        self._end = {
            "outcome": name,
            "finished": timestamp(now),
            "seconds": round((now - self.started).total_seconds(), 3),
            "message": truncated(failure.message, _MESSAGE_BYTES) if failure else "",
            "failedTask": {"name": failure.task, "path": failure.path} if failure else None,
            "changed": stats.changes if stats is not None else None,
        }

    def summary(self) -> Json:
        """Return the document without tasks, writes, changes, requests and log.

        That of a run in progress has the current task.
        """
        found = summary_of(self.document())
        if not self._is_in_task:
            return found
        names = ("name", "action", "path", "started")
        task = {name: self._current[name] for name in names if name in self._current}
        return {**found, "task": {"started": found["started"], **task}}

    def document(self) -> Json:
        """Return the record as JSON, without empty fields."""
        fields = {
            "id": self.run_id,
            "resource": {**object_json(self.ref), "uid": self.uid},
            "outcome": RUNNING,
            "started": timestamp(self.started),
            "traceID": self.trace_id,
            **self._end,
            "causes": causes_json(self.causes),
            "tasks": [*self._tasks, self._current] if self._is_in_task else self._tasks,
            "writes": self._writes,
            "changes": [self._change(*each) for each in self._changes],
            "requests": self._requests,
            "log": self._log,
            "dropped": self._dropped,
        }
        return {name: value for name, value in fields.items() if value not in (None, "", [], {})}

    def _without_overlap(
        self, host: str, start: float | None, end: float | None
    ) -> tuple[float | None, float]:
        """Return the start of a task, and by how many seconds that of its event is too early.

        A host executes one task at a time; events of `meta` tasks have the start of another.
        """
        before = self._last_ends.get(host)
        if end is not None:
            self._last_ends[host] = end
        if start is None or end is None or before is None or start >= before:
            return start, 0.0
        corrected = min(before, end)
        return corrected, corrected - start

    def _append(self, name: str, entries: list[Any], limit: int, entry: object) -> None:
        if len(entries) < limit:
            entries.append(entry)
        else:
            self._dropped[name] = self._dropped.get(name, 0) + 1

    def _hide_since(self, seconds: float) -> None:
        known = self._hidden_since
        self._hidden_since = seconds if known is None else min(known, seconds)

    def _change(self, change: FieldChange, about: Json) -> Json:
        """Return a change with its values, unless they may be secret."""
        task = next((each["name"] for each in self._tasks if _covers(each, about["at"])), "")
        found = {**about, "task": task} if task else dict(about)
        # In a run that is in progress, events of tasks come later than their writes.
        is_hidden = self._hidden_since is not None and (
            # Times of tasks and changes are of two clocks.
            self._is_remote or change.at >= self._hidden_since
        )
        if self.is_running or is_hidden or change.old is None or change.new is None:
            return {**found, "hidden": True}
        return {**found, "before": change.old, "after": change.new}


def object_json(ref: ObjectRef) -> Json:
    """Return what identifies an object, without an empty namespace."""
    found = {
        "apiVersion": ref.gvk.api_version,
        "kind": ref.gvk.kind,
        "namespace": ref.namespace,
        "name": ref.name,
    }
    return {name: value for name, value in found.items() if value}


def matches(resource: Json, query: Mapping[str, str]) -> bool:
    """Return whether a resource, as `object_json` returns it, is selected by a query.

    `query` has some of group, kind, namespace and name.
    """
    found = {
        "group": str(resource["apiVersion"]).rpartition("/")[0],
        "kind": resource["kind"],
        "namespace": resource.get("namespace", ""),
        "name": resource["name"],
    }
    return all(query[key] == value for key, value in found.items() if key in query)


def query_of(ref: ObjectRef) -> dict[str, str]:
    """Return the query that selects a resource, or without a name the resources of a kind."""
    fields = {"group": ref.gvk.group, "kind": ref.gvk.kind}
    return fields | {
        key: value for key, value in (("name", ref.name), ("namespace", ref.namespace)) if value
    }


def summary_of(document: Json) -> Json:
    """Return a record without the fields that only its details have."""
    return {name: value for name, value in document.items() if name not in _DETAILS}


def causes_json(causes: Iterable[Cause]) -> list[Json]:
    """Return the causes of a run, as its record and its artifacts have them."""
    return [
        {"trigger": each.trigger.value, "detail": truncated(each.detail, _TEXT_BYTES)}
        for each in causes
    ]


def causes_text(entry: Json) -> str:
    """Return the causes of a run or of an entry of a queue: `spec: spec.size; retry: attempt 2`."""
    found = (
        ": ".join(filter(None, (str(each.get("trigger")), each.get("detail"))))
        for each in entry.get("causes") or ()
    )
    return "; ".join(dict.fromkeys(found))


def _task(data: Json, result: str, start: float | None, end: float | None, overlap: float) -> Json:
    outcome = data.get("res") or {}
    if result == "ok" and isinstance(outcome, dict) and outcome.get("changed"):
        result = "changed"
    if result == "failed" and data.get("ignore_errors"):
        result = "ignored"
    fields = {
        "name": truncated(str(data.get("task") or ""), _TEXT_BYTES),
        "action": str(data.get("task_action") or ""),
        "path": str(data.get("task_path") or ""),
        "host": host if (host := str(data.get("host") or LOCALHOST)) != LOCALHOST else None,
        "started": None if start is None else _time(start),
        "seconds": round(max(0.0, float(data.get("duration") or 0.0) - overlap), 3),
        "result": result,
        "ended": None if end is None else _time(end),
        "noLog": _is_hidden(data) or None,
    }
    redacted: Json = redact(fields)
    return {name: value for name, value in redacted.items() if value is not None}


def _current_task(data: Json, last_end: float) -> Json:
    """Return the task in progress; its start is the end of the one before."""
    found = _task(data, RUNNING, last_end or None, None, 0.0)
    return {name: value for name, value in found.items() if name != "seconds"}


def _is_hidden(data: Json) -> bool:
    result = data.get("res")
    is_censored = isinstance(result, dict) and ("censored" in result or _has_hidden(result))
    return is_censored or str(data.get("task_args") or "").startswith(_HIDDEN_ARGS)


def _has_hidden(result: Json) -> bool:
    items = result.get("results")
    return isinstance(items, list) and any(
        isinstance(each, dict) and "censored" in each for each in items
    )


def _covers(task: Json, at: str) -> bool:
    return str(task.get("started") or "~") <= at <= str(task.get("ended") or "")


def _seconds(text: Any) -> float | None:
    if not isinstance(text, str):
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def _time(seconds: float) -> str:
    return timestamp(datetime.fromtimestamp(0, UTC) + timedelta(seconds=seconds))


def timestamp(time: datetime) -> str:
    """Return a time as the API has it: UTC, with milliseconds."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


_MAX_BYTES = 16 * 1024 * 1024
"""Limit of all finished runs: summaries, and compressed records. The oldest are dropped first."""
_DEFAULT_KEEP = 20


@dataclass(frozen=True, slots=True)
class _Finished:
    """A finished run: its summary, and the whole record compressed."""

    ref: ObjectRef
    summary: Json
    record: bytes
    size: int
    """Bytes of both, the summary as JSON."""


class RunStore:
    """The runs in progress and the last ones of each resource."""

    def __init__(
        self, clock: Callable[[], datetime] = lambda: datetime.now(UTC), max_bytes: int = _MAX_BYTES
    ) -> None:
        """Start empty; `clock` is the wall clock."""
        self._clock = clock
        self._max_bytes = max_bytes
        self._running: dict[str, RunRecorder] = {}
        self._finished: OrderedDict[str, _Finished] = OrderedDict()
        self._by_resource: dict[ObjectRef, list[str]] = {}
        self._bytes = 0
        self._changed = asyncio.Event()
        self._on_record: list[Callable[[Json], None]] = []

    def on_record(self, callback: Callable[[Json], None]) -> None:
        """Call `callback` with the record of each run, when it ends, in the task that reports it.

        It must not raise.
        """
        self._on_record.append(callback)

    # Reports of runs -----------------------------------------------------------------

    def started(self, ref: ObjectRef, uid: str, run_id: str, causes: Sequence[Cause]) -> None:
        """Record the start of a run; its trace is that of the log lines of the current task."""
        trace_id = str(structlog.contextvars.get_contextvars().get("trace_id") or "")
        recorder = RunRecorder(run_id, ref, uid, tuple(causes), self._clock(), trace_id)
        self._running[run_id] = recorder
        self._notify()

    def on_event(self, run_id: str, event: RunEvent) -> None:
        """Record an event of a run."""
        if (recorder := self._running.get(run_id)) is not None:
            recorder.on_event(event)
            self._notify()

    def on_changes(self, ref: ObjectRef, changes: Iterable[FieldChange]) -> None:
        """Record fields that the current run of a resource has changed."""
        for recorder in self._running.values():
            if recorder.ref == ref:
                for change in changes:
                    recorder.on_change(change)

    def on_write(self, ref: ObjectRef, written: ObjectRef, verb: str) -> None:
        """Record that the current run of a resource has written an object.

        `verb` is create, update, patch or delete.
        """
        for recorder in self._running.values():
            if recorder.ref == ref:
                recorder.on_write(written, verb)

    def on_request(self, run_id: str, request: RunApiRequest) -> None:
        """Record a request of a run in progress."""
        if (recorder := self._running.get(run_id)) is not None:
            recorder.on_request(request)

    def on_log(self, run_id: str, line: str) -> None:
        """Record a log line about a run in progress."""
        if (recorder := self._running.get(run_id)) is not None:
            recorder.on_log(line)

    def ended(self, run_id: str, outcome: RunOutcome | None, keep: int = _DEFAULT_KEEP) -> None:
        """Record the end of a run, None for a cancelled one; keep `keep` runs of the resource."""
        recorder = self._running.pop(run_id)
        recorder.end(outcome, self._clock())
        document = recorder.document()
        self._add(recorder.ref, document)
        self._drop_old(recorder.ref, keep or _DEFAULT_KEEP)
        self._notify()
        for on_record in self._on_record:
            on_record(document)

    def forget(self, ref: ObjectRef) -> None:
        """Drop the finished runs of a deleted resource."""
        for run_id in tuple(self._by_resource.get(ref, ())):
            self._remove(run_id)

    # Queries -------------------------------------------------------------------------

    def summaries(
        self, matches: Callable[[Json], bool], limit: int, *, is_last: bool = False
    ) -> list[Json]:
        """Return the summaries of the newest runs that match, newest first.

        With `is_last`, the last run of each resource, and those in progress.
        """
        others = [each.summary() for each in self._running.values()]
        found = [each for each in others if matches(each)]
        ids = (each[-1] for each in self._by_resource.values()) if is_last else self._finished
        finished = (self._finished[each].summary for each in ids)
        found += [each for each in finished if matches(each)]
        return sorted(found, key=lambda each: str(each["started"]), reverse=True)[:limit]

    def document(self, run_id: str) -> Json | None:
        """Return the record of a run, None if it is not kept."""
        if (recorder := self._running.get(run_id)) is not None:
            return recorder.document()
        finished = self._finished.get(run_id)
        if finished is None:
            return None
        record: Json = json.loads(zlib.decompress(finished.record))
        return record

    def resource_of(self, run_id: str) -> ObjectRef | None:
        """Return the resource of a run, None if the run is not known."""
        if (recorder := self._running.get(run_id)) is not None:
            return recorder.ref
        finished = self._finished.get(run_id)
        return None if finished is None else finished.ref

    def last(self, ref: ObjectRef, uid: str, count: int) -> list[Json]:
        """Return the records of the last finished runs of a resource, oldest first."""
        found = [self.document(run_id) for run_id in self._by_resource.get(ref, ())]
        return [each for each in found if each is not None and each["resource"].get("uid") == uid][
            -count:
        ]

    def running(self, run_id: str) -> RunRecorder | None:
        """Return the recorder of a run in progress."""
        return self._running.get(run_id)

    async def wait_changed(self, seconds: float) -> None:
        """Wait until something is recorded, at most `seconds`."""
        changed = self._changed
        try:
            async with asyncio.timeout(seconds):
                await changed.wait()
        except TimeoutError:
            return

    def _notify(self) -> None:
        # Each waiter has the event that was current when it began to wait.
        self._changed.set()
        self._changed = asyncio.Event()

    def _add(self, ref: ObjectRef, document: Json) -> None:
        run_id = str(document["id"])
        if run_id in self._finished:
            self._remove(run_id)
        summary, record = summary_of(document), zlib.compress(json.dumps(document).encode())
        size = len(record) + len(json.dumps(summary))
        self._finished[run_id] = _Finished(ref, summary, record, size)
        self._by_resource.setdefault(ref, []).append(run_id)
        self._bytes += size
        while self._bytes > self._max_bytes:
            self._remove(next(iter(self._finished)))

    def _drop_old(self, ref: ObjectRef, keep: int) -> None:
        for run_id in self._by_resource.get(ref, [])[:-keep]:
            self._remove(run_id)

    def _remove(self, run_id: str) -> None:
        finished = self._finished.pop(run_id)
        self._bytes -= finished.size
        ids = self._by_resource[finished.ref]
        ids.remove(run_id)
        if not ids:
            del self._by_resource[finished.ref]
