"""The read-only HTTP API: runs, queue, schedules, drift and dependents. See docs/adr/0039."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from aiohttp import web

from operator_runner.core.model import Cause, Json, ObjectRef
from operator_runner.core.texts import printable, without_colours
from operator_runner.net.sockets import abort
from operator_runner.telemetry.runs.access import ROOT
from operator_runner.telemetry.runs.records import RunStore, matches, object_json, timestamp


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """A resource in the queue.

    `state` is `Running`, `Queued` (waiting for a worker) or `Delayed`. `seconds` is how long it has
    been queued, or the time until it is due. `failures` counts those in a row. `position` begins
    with 1 and is set for queued resources only.
    """

    ref: ObjectRef
    state: str
    causes: Sequence[Cause]
    seconds: float | None = None
    failures: int = 0
    position: int | None = None


@dataclass(frozen=True, slots=True)
class ScheduleEntry:
    """The next tick of a resource with a schedule; `error` is why there is none."""

    ref: ObjectRef
    next: datetime | None
    last: datetime | None
    error: str = ""


@dataclass(frozen=True, slots=True)
class DriftEntry:
    """A resource whose objects differ, or for which that is unknown because the dry run failed.

    `text` is what a run would write, as of the last dry run that succeeded; empty for nothing.
    `failure` is why the last dry run failed; empty if it succeeded.
    """

    ref: ObjectRef
    text: str = ""
    failure: str = ""

    @property
    def is_known(self) -> bool:
        """Whether the last dry run succeeded."""
        return not self.failure

    @property
    def message(self) -> str:
        """The message of the condition Drifted."""
        return self.failure or self.text


class OperatorView(Protocol):
    """The state that the API reads of a running operator; no method blocks or changes anything."""

    def identity(self) -> Json:
        """Return name, version, kinds and leadership of this replica."""

    def queue(self) -> Sequence[QueueEntry]:
        """Return the resources that run, wait or are due later."""

    def schedules(self) -> Sequence[ScheduleEntry]:
        """Return the resources with a schedule."""

    def drifts(self) -> Sequence[DriftEntry]:
        """Return the resources with drift, or for which that is unknown."""

    def dependents(self) -> Sequence[tuple[ObjectRef, Sequence[ObjectRef]]]:
        """Return each resource with the objects that its runs have created or read."""

    async def output(self, ref: ObjectRef, run_id: str) -> str:
        """Return the output of a finished run from its artifacts, empty if they are not kept."""


_DEFAULT_LIMIT, _MAX_LIMIT, _MAX_LAST_LIMIT = 50, 500, 5000
_FOLLOW_SECONDS = 5.0
"""Longest pause in the output of a followed run, after which the connection is checked."""
_STALLED_SECONDS = 90.0
"""Time for a reader to take the next part of an output, the same as the idle time of connections.
Until then, its connection cannot be closed for others."""
_MAX_OUTPUT_CHARACTERS = 1024 * 1024
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class RunsApi:
    """Answers GET requests below /api/v1."""

    def __init__(
        self,
        store: RunStore,
        view: OperatorView,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Read from `store` and `view`; `clock` is the wall clock."""
        self._store = store
        self._view = view
        self._clock = clock

    def add_routes(self, app: web.Application) -> None:
        """Add all paths to an application."""
        app.router.add_get(ROOT, self._root)
        app.router.add_get(f"{ROOT}/runs", self._runs)
        app.router.add_get(f"{ROOT}/runs/{{id}}", self._run)
        app.router.add_get(f"{ROOT}/runs/{{id}}/output", self._output)
        for name, items in (
            ("queue", self._queue),
            ("schedules", lambda: map(_schedule_json, self._view.schedules())),
            ("drift", lambda: map(_drift_json, self._view.drifts())),
            ("dependents", self._dependents),
        ):
            app.router.add_get(f"{ROOT}/{name}", _list_handler(items))

    async def _root(self, _request: web.Request) -> web.Response:
        return _json(self._view.identity())

    async def _runs(self, request: web.Request) -> web.Response:
        try:
            limit = int(request.query.get("limit", _DEFAULT_LIMIT))
        except ValueError:
            return _error(400, "invalid limit: write a number")
        query = dict(request.query)
        is_last = query.get("last") == "true"
        found = self._store.summaries(
            lambda run: (
                matches(run["resource"], query) and query.get("outcome") in {None, run["outcome"]}
            ),
            max(1, min(limit, _MAX_LAST_LIMIT if is_last else _MAX_LIMIT)),
            is_last=is_last,
        )
        return _json({"items": found})

    async def _run(self, request: web.Request) -> web.Response:
        run_id = request.match_info["id"]
        document = self._store.document(run_id)
        return _not_found(run_id) if document is None else _json(document)

    async def _output(self, request: web.Request) -> web.StreamResponse:
        run_id = request.match_info["id"]
        ref = self._store.resource_of(run_id)
        if ref is None:
            return _not_found(run_id)
        if self._store.running(run_id) is None:
            text = await self._view.output(ref, run_id)
            return web.Response(text=_plain(text[-_MAX_OUTPUT_CHARACTERS:]), headers=_HEADERS)
        return await self._follow(request, run_id)

    async def _follow(self, request: web.Request, run_id: str) -> web.StreamResponse:
        """Send the output of a run in progress; with `follow=true` until it ends."""
        response = web.StreamResponse(headers={**_HEADERS, "Content-Type": "text/plain"})
        await response.prepare(request)

        async def write(text: bytes) -> None:
            async with asyncio.timeout(_STALLED_SECONDS):
                await response.write(text)

        recorder, sent = self._store.running(run_id), 0
        while recorder is not None:
            try:
                sent = await write_new(write, recorder.output, sent)
            except TimeoutError:
                if request.transport is not None:
                    abort(request.transport)
                return response
            if not recorder.is_running or request.query.get("follow") != "true":
                break
            await self._store.wait_changed(_FOLLOW_SECONDS)
        await response.write_eof()
        return response

    def _queue(self) -> Iterator[Json]:
        now = self._clock()
        return (_queue_json(each, now) for each in self._view.queue())

    def _dependents(self) -> Iterator[Json]:
        for ref, objects in self._view.dependents():
            yield {"resource": object_json(ref), "objects": [*map(object_json, objects)]}


async def write_new(
    write: Callable[[bytes], Awaitable[None]], output: Sequence[str], sent: int
) -> int:
    """Write what follows the first `sent` texts of an output; return how many are written then.

    While a slow reader is waited for, texts are added.
    """
    while sent < len(output):
        await write((_plain(output[sent]) + "\n").encode())
        sent += 1
    return sent


def _list_handler(
    items: Callable[[], Iterable[Json]],
) -> Callable[[web.Request], Awaitable[web.Response]]:
    """Return a handler that answers with those of the items that the query selects."""

    async def answer(request: web.Request) -> web.Response:
        found = [each for each in items() if matches(each["resource"], request.query)]
        return _json({"items": found})

    return answer


def _queue_json(entry: QueueEntry, now: datetime) -> Json:
    due = None
    if entry.state == "Delayed" and entry.seconds is not None:
        due = timestamp(now + timedelta(seconds=entry.seconds))
    since = None
    if entry.state == "Queued" and entry.seconds is not None:
        since = timestamp(now - timedelta(seconds=entry.seconds))
    fields = {
        "resource": object_json(entry.ref),
        "state": entry.state,
        "position": entry.position,
        "since": since,
        "due": due,
        "failures": entry.failures or None,
        "causes": [{"trigger": each.trigger.value, "detail": each.detail} for each in entry.causes],
    }
    return {name: value for name, value in fields.items() if value is not None}


def _schedule_json(entry: ScheduleEntry) -> Json:
    fields = {
        "resource": object_json(entry.ref),
        "next": None if entry.next is None else timestamp(entry.next),
        "last": None if entry.last is None else timestamp(entry.last),
        "error": entry.error or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _drift_json(entry: DriftEntry) -> Json:
    status = "True" if entry.is_known else "Unknown"
    return {"resource": object_json(entry.ref), "status": status, "message": entry.message}


def _plain(text: str) -> str:
    return printable(without_colours(text).replace("\r\n", "\n"))


def _json(document: Json) -> web.Response:
    return web.Response(
        text=json.dumps(document), content_type="application/json", headers=_HEADERS
    )


def _error(status: int, message: str) -> web.Response:
    return web.Response(
        status=status,
        text=json.dumps({"message": message}),
        content_type="application/json",
        headers=_HEADERS,
    )


def _not_found(run_id: str) -> web.Response:
    return _error(404, f"run {printable(run_id)} is not kept by this operator")
