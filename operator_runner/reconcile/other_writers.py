"""Notice another operator that writes the conditions of the same resources; see ADR 31.

Conditions that differ from those that this process has read or written last were written by
another process. In a rolling update the old and the new Pod write for a short time: only writes
that are further apart are from an operator that stays.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from operator_runner.core.model import GVK, EventSpec, Json, ObjectRef, uid_of
from operator_runner.core.resource_states import ResourceStates
from operator_runner.reconcile.conditions import read_conditions
from operator_runner.reconcile.observer import Observer, ResourceRun
from operator_runner.reconcile.protocols import ClusterClient

_log = structlog.get_logger(__name__)
_CURE = (
    "stop one of them, run replicas with --leader-elect, or separate them by WATCH_NAMESPACE or "
    "selector"
)
_TYPES = ("Running", "Successful", "Failure")
_UPDATE_TIME = timedelta(seconds=30)
"""Time in which a rolling update notices that a new Pod is ready and ends the old one."""
_EXPIRY = timedelta(hours=24)
"""Writes that are further apart are from different updates of the operator."""


@dataclass(frozen=True, slots=True)
class OtherWriter:
    """Another writer of the conditions: its field manager, and two of its writes."""

    manager: str
    first: datetime
    last: datetime


@dataclass(slots=True)
class _KnownConditions:
    """The end of what is known of the conditions of one resource."""

    forget: Callable[[str], None]
    uid: str = ""

    def close(self) -> None:
        """See `SupportsClose`."""
        self.forget(self.uid)


class OtherWriters:
    """The conditions that this process has read or written last, by uid of the resource.

    Every method takes resources as the API server returns them.
    """

    def __init__(
        self, clock: Callable[[], datetime], graceful_shutdown: timedelta, states: ResourceStates
    ) -> None:
        """`graceful_shutdown` is the time that an old Pod has for its last runs.

        The conditions of a resource are forgotten when its state in `states` ends.
        """
        self._clock = clock
        self._states = states
        self._overlap = _UPDATE_TIME + graceful_shutdown
        self._ignored_until: datetime | None = None
        self._known: dict[str, bytes] = {}
        self._first: dict[tuple[str, str], datetime] = {}
        self._found: dict[tuple[str, str], OtherWriter] = {}
        self._reported: set[tuple[str, str]] = set()

    def read(self, body: Json) -> None:
        """Compare the conditions of a resource with the known ones, and record them."""
        if self._ignored_until is None:
            # The last writes of the Pod that this one replaces.
            self._ignored_until = self._clock() + self._overlap
        uid, state = uid_of(body), _state(body)
        if self._known.get(uid, state) != state:
            self._differs(body)
        self._know(body, state)

    def record_own_write(self, body: Json) -> None:
        """Record the conditions of a resource after a write of this process."""
        self._know(body, _state(body))

    def _know(self, body: Json, state: bytes) -> None:
        self._states.of(ObjectRef.of(body)).slot(_KnownConditions, self.forget).uid = uid_of(body)
        self._known[uid_of(body)] = state

    def forget(self, uid: str) -> None:
        """Forget a resource: it is deleted, or written by a run or with an unknown result."""
        self._known.pop(uid, None)

    def take(self, gvk: GVK) -> OtherWriter | None:
        """Return another writer of this kind if one was noticed, once for each kind."""
        kind = gvk.group, gvk.kind
        found = self._found.pop(kind, None)
        if found is None or kind in self._reported:
            return None
        self._reported.add(kind)
        return found

    def _differs(self, body: Json) -> None:
        written, manager = _last_write(body) or (self._clock(), "unknown")
        assert self._ignored_until is not None
        if written < self._ignored_until:
            return
        gvk = GVK.of(body["apiVersion"], body["kind"])
        kind = gvk.group, gvk.kind
        first = self._first.setdefault(kind, written)
        if written - first > _EXPIRY:
            self._first[kind] = written
        elif written - first >= self._overlap:
            self._found[kind] = OtherWriter(manager, first, written)


class OtherWritersObserver(Observer):
    """Reports another operator that writes the conditions of the resources of a kind."""

    def __init__(self, writers: OtherWriters, cluster: ClusterClient) -> None:
        """`writers` compares what is read and written."""
        self._writers = writers
        self._cluster = cluster

    async def begin(self, run: ResourceRun) -> None:
        """See `Observer`."""
        self._writers.read(run.body)

    @asynccontextmanager
    async def playing(self, run: ResourceRun) -> AsyncIterator[None]:
        """See `Observer`."""
        if (other := self._writers.take(run.ref.gvk)) is not None:
            _log.warning(
                "Another operator writes the status of the same resources",
                manager=other.manager,
                first=other.first.isoformat(),
                last=other.last.isoformat(),
                hint=_CURE,
            )
            note = f"Another operator (manager {other.manager}) writes the status of this resource"
            event = EventSpec("AnotherOperator", f"{note}; {_CURE}", warning=True)
            await self._cluster.emit(run.body, event)
        # The role may write the status too.
        self._writers.forget(run.uid)
        yield


def _state(body: Json) -> bytes:
    """Return a digest of the conditions that operators write, times and recaps included."""
    ours = {one["type"]: one for one in read_conditions(body) if one.get("type") in _TYPES}
    text = json.dumps(ours, sort_keys=True)
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()


def _last_write(body: Json) -> tuple[datetime, str] | None:
    """Return time and manager of the last write to the conditions, by the API server's clock.

    None if the object has no managed fields. A list of conditions is owned as a whole, or by type.
    """
    writes = [
        (datetime.fromisoformat(entry["time"]), str(entry.get("manager")))
        for entry in body["metadata"].get("managedFields") or ()
        if entry.get("time") and _writes_conditions(entry)
    ]
    return max(writes, default=None)


def _writes_conditions(entry: Json) -> bool:
    fields = (entry.get("fieldsV1") or {}).get("f:status") or {}
    conditions = fields.get("f:conditions")
    if conditions is None:
        return False
    keys = [key for key in conditions if key.startswith("k:")]
    return not keys or any(json.loads(key[2:]).get("type") in _TYPES for key in keys)
