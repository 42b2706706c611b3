"""Write the status of a resource, only where it differs and with optimistic concurrency."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from operator_runner.core.errors import ApiError, Conflict, Invalid, NotFound
from operator_runner.core.merge_patch import replacing
from operator_runner.core.model import GVK, Json, ObjectRef, uid_of
from operator_runner.reconcile.conditions import read_conditions, with_reasons
from operator_runner.reconcile.other_writers import OtherWriters
from operator_runner.reconcile.protocols import ClusterClient

ATTEMPTS = 5

ConditionsUpdate: TypeAlias = Callable[[Sequence[Json]], list[Json]]
"""Maps the conditions of a resource to those that it should have."""


class StatusWriter:
    """Writes the conditions of resources."""

    def __init__(self, cluster: ClusterClient, other_writers: OtherWriters) -> None:
        """Take the cluster to write to; `other_writers` compares what is read and written."""
        self._cluster = cluster
        self._other_writers = other_writers
        self._strict: set[GVK] = set()

    async def write(
        self,
        ref: ObjectRef,
        uid: str,
        update: ConditionsUpdate,
        body: Json | None = None,
        fields: Mapping[str, Any] | None = None,
        *,
        attempts: int = ATTEMPTS,
    ) -> Json | None:
        """Apply `update` to the conditions and return the resource as it is then.

        `uid` identifies the resource: a new one of the same name is not written. `body` is the
        resource if it was just read. `fields` are other top-level fields of the status: a map
        replaces the former map, and None removes a field; they are written in the same patch.
        Returns None for a deleted resource. Raises ApiError; Conflict after the last attempt.
        """
        for attempt in range(attempts):
            current = body if body is not None and attempt == 0 else await self._cluster.get(ref)
            if current is None or uid_of(current) != uid:
                return None
            if current is not body:
                self._other_writers.read(current)
            conditions = read_conditions(current)
            wanted = self._fit(ref.gvk, update(conditions))
            patch = replacing(status_of(current), fields or {})
            if wanted == conditions and not patch:
                return current
            try:
                written = await self._patch(current, ref.gvk, {**patch, "conditions": wanted})
            except Conflict:
                continue
            except NotFound:
                return None
            except ApiError:
                self._other_writers.forget(uid)  # it may have been carried out
                raise
            self._other_writers.record_own_write(written)
            return written
        raise Conflict(
            f"cannot write the status of {ref}: it changed during each of {attempts} attempts"
        )

    async def _patch(self, body: Json, gvk: GVK, status: Json) -> Json:
        try:
            return await self._cluster.patch_status(body, status)
        except Invalid:
            if gvk in self._strict:
                raise
            # A schema like metav1.Condition forbids empty reasons, which ansible-operator writes.
            self._strict.add(gvk)
            reasons = with_reasons(status["conditions"])
            try:
                return await self._cluster.patch_status(body, {**status, "conditions": reasons})
            except Invalid:
                self._strict.discard(gvk)
                raise

    def _fit(self, gvk: GVK, conditions: list[Json]) -> list[Json]:
        return with_reasons(conditions) if gvk in self._strict else conditions


def status_of(body: Json) -> Json:
    """Return the status of a resource, empty if it is missing or invalid."""
    status = body.get("status")
    return status if isinstance(status, dict) else {}


def generation_of(body: Json) -> int:
    """Return the generation of a resource, 0 if its kind has no generations."""
    return int(body["metadata"].get("generation") or 0)
