"""Whether what a person has done meanwhile ends a run under way, where the watch asks for it.

See docs/adr/0009-bounds-and-superseding.md.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import structlog

from operator_runner.core.async_tasks import end_tasks
from operator_runner.core.errors import ApiError
from operator_runner.core.model import Cause, Json, ObjectRef, RunOutcome, Trigger, Watch

_log = structlog.get_logger(__name__)

_BY_PEOPLE = frozenset({Trigger.SPEC, Trigger.ANNOTATION, Trigger.DELETION})
"""Causes after which the resource is looked at; all others end no run."""
_IN_A_ROW = 5
"""Runs of a resource that edits may end one after the other; the next one goes to its end."""
_NOT_ASKED_FOR = ("apiVersion", "kind", "metadata", "status")


def why_superseded(running: Json, now: Json | None, watch: Watch) -> str:
    """Say what makes a run of `running` pointless; empty if nothing does. Pure.

    `now` is the resource as it is, None if it is gone. What others write into status, labels
    and finalizers never does.
    """
    if now is None or now["metadata"].get("uid") != running["metadata"].get("uid"):
        return "deleted"
    old, new = running["metadata"], now["metadata"]
    if new.get("deletionTimestamp"):
        return "" if old.get("deletionTimestamp") else "being deleted"
    before, after = old.get("generation") or 0, new.get("generation") or 0
    if before != after:
        return f"generation {before} to {after}"
    if not after and _asked(running) != _asked(now):
        # Kinds without generation, such as ConfigMap, are compared by what they hold.
        return f"resourceVersion {old.get('resourceVersion')} to {new.get('resourceVersion')}"
    if watch.watch_annotations_changes and old.get("annotations") != new.get("annotations"):
        return "annotations"
    return ""


def _asked(body: Json) -> Json:
    return {name: value for name, value in body.items() if name not in _NOT_ASKED_FOR}


@dataclass(slots=True)
class Superseding:
    """The runs of one watch that may be superseded, and how often each resource's were."""

    watch: Watch
    read: Callable[[ObjectRef], Awaitable[Json | None]]
    """Reads a resource as it is, None if it is gone. Raises ApiError."""
    relevant: Callable[[Json, Watch], bool]
    _news: dict[ObjectRef, asyncio.Event] = field(default_factory=dict)
    _row: Counter[ObjectRef] = field(default_factory=Counter)

    @contextmanager
    def listening(self, ref: ObjectRef) -> Iterator[None]:
        """Take note of events inside the block, which begins before the resource is read."""
        self._news[ref] = asyncio.Event()
        try:
            yield
        finally:
            del self._news[ref]

    def heard(self, ref: ObjectRef, cause: Cause) -> None:
        """Take note of an event; it is looked at if a run is under way that it may end."""
        if cause.trigger in _BY_PEOPLE and ref in self._news:
            self._news[ref].set()

    async def run(
        self, ref: ObjectRef, body: Json, play: Coroutine[Any, Any, RunOutcome]
    ) -> RunOutcome | None:
        """Run the play to its end; None if it was ended, for `body` is not what is wanted now.

        A cancelled play has ended with everything that it started, see `ports.Executor`.
        """
        if not self.watch.supersede:
            return await play
        playing = asyncio.create_task(play)
        looking = asyncio.create_task(self._look(ref, body))
        try:
            await asyncio.wait({playing, looking}, return_when=asyncio.FIRST_COMPLETED)
            if not playing.done():
                _log.info("Run superseded", by=looking.result())
                playing.cancel()
                await asyncio.wait({playing})
        finally:
            await end_tasks([playing, looking])
        if playing.cancelled():
            self._row[ref] += 1
            return None
        del self._row[ref]
        return playing.result()

    def forget(self, ref: ObjectRef) -> bool:
        """Return whether the last run of a resource was superseded, and forget it."""
        return self._row.pop(ref, 0) > 0

    async def _look(self, ref: ObjectRef, body: Json) -> str:
        """Wait until the run of `body` is superseded and say by what."""
        news = self._news[ref]
        while True:
            await news.wait()
            news.clear()
            why = await self._judge(ref, body)
            if why:
                return why

    async def _judge(self, ref: ObjectRef, body: Json) -> str:
        try:
            now = await self.read(ref)
        except ApiError as error:
            _log.warning("Cannot tell whether the run is superseded", reason=str(error))
            return ""
        if now is None or now["metadata"].get("deletionTimestamp"):
            return why_superseded(body, now, self.watch)
        # What is not chosen any more gets no further run, so this one says how it stands.
        may = self._row[ref] < _IN_A_ROW and self.relevant(now, self.watch)
        return why_superseded(body, now, self.watch) if may else ""
