"""Report expressions of watches that fail: a log line for each object, and a few Events.

The resources that an object is about have the condition ExpressionFailure.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterator

import structlog

from operator_runner.controller.predicates.wake_on_fields import ExpressionPlace, FailedExpression
from operator_runner.core.model import GVK, EventSpec, Json, ObjectRef, uid_of
from operator_runner.core.slot_assignment import slot_of
from operator_runner.core.texts import truncated
from operator_runner.reconcile.expression_conditions import ExpressionConditions

_log = structlog.get_logger(__name__)

MAX_EVENTS = 10
WINDOW_SECONDS = 600.0
"""At most so many Events for one expression in this time: thousands of objects may be wrong."""
_REASON_BYTES = 300


class FailedExpressions:
    """Writes log lines at once, and Events one after the other."""

    def __init__(
        self,
        emit: Callable[[Json, EventSpec], Awaitable[None]],
        uid: Callable[[ObjectRef], str],
        conditions: ExpressionConditions,
        clock: Callable[[], float] = time.monotonic,
        *,
        count: Callable[[GVK, str], None] = lambda *_: None,
        owns: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """`emit` writes an Event, `uid` returns that of a resource; empty if it is not known.

        `count` is called with kind and key of each failure that is counted. All replicas notice
        it: the one counts and writes the Event which `owns` the uid of the object.
        """
        self._emit = emit
        self._uid = uid
        self._conditions = conditions
        self._clock = clock
        self._count = count
        self._owns = owns
        self._failing: dict[ExpressionPlace, FailedExpression] = {}
        self._waiting: asyncio.Queue[tuple[Json, EventSpec]] = asyncio.Queue()
        self._counts: dict[tuple[str, str], tuple[float, int]] = {}
        """Start of the window and number of Events by kind and key."""

    def report(self, failed: FailedExpression) -> None:
        """Log a failure, and emit Events about the resources, or about the object without any."""
        key, reason = failed.error.key, _reason(failed)
        _log.warning(
            "Cannot evaluate an expression of watches.yaml",
            gvk=str(failed.gvk),
            key=key,
            expression=failed.error.expression,
            object=str(failed.ref),
            error=reason,
        )
        text = f"{key} of watches.yaml fails for {failed.ref}: {failed.error.expression}: {reason}"
        self._failing[failed.place] = failed
        if self._owns(failed.uid):
            self._count(failed.gvk, key)
        self._conditions.failed(failed.gvk, key, failed.ref, text, failed.resources)
        note = f"{text}; correct the expression or the object"
        spec = EventSpec("InvalidExpression", note, warning=True, action="Watch")
        for body in self._subjects_of(failed):
            if self._may_emit(str(failed.gvk), key):
                self._waiting.put_nowait((body, spec))

    def recovered(self, place: ExpressionPlace) -> None:
        """Take the failure out of the condition of the resources."""
        self._failing.pop(place, None)
        self._conditions.recovered(place.gvk, place.key, place.ref)

    def gained(self, slots: Collection[int]) -> None:
        """Count what fails for the objects of slots that this replica gains, as after a start."""
        for failed in self._failing.values():
            if slot_of(failed.uid) in slots:
                self._count(failed.gvk, failed.error.key)

    async def run(self) -> None:
        """Emit the Events until cancelled."""
        while True:
            body, event = await self._waiting.get()
            if self._owns(uid_of(body)):
                await self._emit(body, event)

    def _subjects_of(self, failed: FailedExpression) -> Iterator[Json]:
        resources = sorted(failed.resources)
        uids = [(ref, self._uid(ref)) for ref in resources] or [(failed.ref, failed.uid)]
        for ref, uid in uids:
            if uid:
                names = {"namespace": ref.namespace} if ref.namespace else {}
                metadata = {"name": ref.name, "uid": uid, **names}
                yield {
                    "apiVersion": ref.gvk.api_version,
                    "kind": ref.gvk.kind,
                    "metadata": metadata,
                }

    def _may_emit(self, kind: str, key: str) -> bool:
        since, count = self._counts.get((kind, key), (self._clock(), 0))
        if self._clock() - since >= WINDOW_SECONDS:
            since, count = self._clock(), 0
        self._counts[kind, key] = since, count + 1
        return count < MAX_EVENTS


def _reason(failed: FailedExpression) -> str:
    """Return why the expression fails: jmespath quotes the value, which may be long or secret."""
    if failed.ref.gvk.kind == "Secret":
        return "it cannot be evaluated (values of a Secret are not shown)"
    return truncated(failed.error.reason, _REASON_BYTES)
