"""Keep the records of runs in memory, limited by number and by size."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

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
from operator_runner.telemetry.runs.record import RunRecorder, summary_of

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
