"""Write the status of a resource, only where it differs and with optimistic concurrency."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import structlog

from operator_runner.core.errors import ApiError, Conflict, Invalid, NotFound
from operator_runner.core.model import GVK, Json, ObjectRef, uid_of
from operator_runner.core.object_diff import replacing_patch
from operator_runner.reconcile.conditions import read_conditions, with_reasons
from operator_runner.reconcile.protocols import ClusterClient

if TYPE_CHECKING:
    from operator_runner.reconcile.other_writers import OtherWriters

_log = structlog.get_logger(__name__)
ATTEMPTS = 5
GENERATION = "observedGeneration"
GENERATION_YAML = f"`{GENERATION}: {{type: integer, format: int64}}` to the properties"
GENERATION_PLACES = _OF_STATUS, _OF_CONDITIONS = "status", "status.conditions.items"
"""Schemas in a CRD that need the generation."""

ConditionsUpdate: TypeAlias = Callable[[Sequence[Json]], list[Json]]
"""Maps the conditions of a resource to those that it should have."""


class StatusWriter:
    """Writes the conditions of resources."""

    def __init__(self, cluster: ClusterClient, other_writers: OtherWriters) -> None:
        """Take the cluster to write to; `other_writers` compares what is read and written."""
        self._cluster = cluster
        self._other_writers = other_writers
        # Indexes in _FORMS.
        self._forms: dict[GVK, int] = {}
        # Places where the CRD of a kind does not keep the generation.
        self._pruned: dict[GVK, frozenset[str]] = {}

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
            patch = replacing_patch(status_of(current), fields or {})
            form = _FORMS[self._forms.get(ref.gvk, 0)]
            status = form({**patch, "conditions": update(conditions)})
            if self._without_pruned(ref.gvk, status) == {"conditions": conditions}:
                return current
            try:
                written = await self._patch(current, ref.gvk, status)
            except Conflict:
                continue
            except NotFound:
                return None
            except ApiError:
                self._other_writers.forget(uid)  # it may have been carried out
                raise
            self._other_writers.record_own_write(written)
            self._compare(ref.gvk, status, status_of(written))
            return written
        raise Conflict(
            f"cannot write the status of {ref}: it changed during each of {attempts} attempts"
        )

    async def _patch(self, body: Json, gvk: GVK, status: Json) -> Json:
        """Write a status in the first form that the schema of the kind accepts."""
        refused: Invalid | None = None
        for number in range(self._forms.get(gvk, 0), len(_FORMS)):
            try:
                written = await self._cluster.patch_status(body, _FORMS[number](status))
            except Invalid as error:
                refused = error
            else:
                self._forms[gvk] = number
                return written
        assert refused is not None
        raise refused

    def _without_pruned(self, gvk: GVK, status: Json) -> Json:
        """Return what the CRD keeps of a status, as far as that is known."""
        pruned = self._pruned.get(gvk, frozenset())
        return _without_generations(status, pruned)

    def _compare(self, gvk: GVK, sent: Json, written: Json) -> None:
        """Notice where the API server has dropped the generation, and report it once."""
        known = self._pruned.get(gvk, frozenset())
        found = _generation_places(sent) - _generation_places(written)
        self._pruned[gvk] = (known - _generation_places(written)) | found
        if new := sorted(found - known):
            _log.warning(
                "The CRD drops observedGeneration: `kubectl wait` may return before an edit is "
                "applied",
                gvk=str(gvk),
                fields=new,
                hint=f"add {GENERATION_YAML} of each of these in the schema of the CRD",
            )


def _generation_places(status: Json) -> frozenset[str]:
    """Return the schemas of the CRD that need the generation which a status has."""
    places = {_OF_STATUS} if status.get(GENERATION) is not None else set()
    if any(each.get(GENERATION) is not None for each in read_conditions({"status": status})):
        places.add(_OF_CONDITIONS)
    return frozenset(places)


def _without_generations(status: Json, places: Collection[str]) -> Json:
    result = _without_generation(status) if _OF_STATUS in places else status
    if _OF_CONDITIONS in places:
        result = {**result, "conditions": [*map(_without_generation, status["conditions"])]}
    return result


def _without_generation(of: Json) -> Json:
    return {name: value for name, value in of.items() if name != GENERATION}


def _with_reasons(status: Json) -> Json:
    """Return a status for a schema like metav1.Condition.

    It forbids empty reasons, which ansible-operator writes.
    """
    return {**status, "conditions": with_reasons(status["conditions"])}


def _without_any_generation(status: Json) -> Json:
    """Return a status for a schema in which observedGeneration is not an integer."""
    return _without_generations(_with_reasons(status), GENERATION_PLACES)


_FORMS: tuple[Callable[[Json], Json], ...] = (dict, _with_reasons, _without_any_generation)


def status_of(body: Json) -> Json:
    """Return the status of a resource, empty if it is missing or invalid."""
    status = body.get("status")
    return status if isinstance(status, dict) else {}
