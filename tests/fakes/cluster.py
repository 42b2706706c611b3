"""A cluster in memory: as strict about versions and schemas as the tests need."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from operator_runner.core.errors import Conflict, Invalid, NotFound
from operator_runner.core.model import GVK, EventSpec, Json, ObjectRef


def merged(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch, as RFC 7396 defines it."""
    if not isinstance(patch, dict):
        return patch
    # A merge patch puts an object in the place of anything else.
    result = target if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


class FakeCluster:
    """Holds objects by reference; every write is counted up in resourceVersion."""

    def __init__(self, *bodies: Json, strict_reasons: bool = False) -> None:
        """`strict_reasons` refuses conditions without a reason, as metav1.Condition does."""
        self.objects = {ObjectRef.of(body): copy.deepcopy(body) for body in bodies}
        self._strict = strict_reasons
        self.events: list[EventSpec] = []
        self.reads = 0
        self.before_write: Callable[[], None] = lambda: None

    async def explain_missing(self, gvk: GVK) -> str:
        """See the port: nothing that is asked about is served."""
        return f"did you mean {gvk.kind.title()}?"

    def edit(self, ref: ObjectRef, change: Callable[[Json], None]) -> None:
        """Change an object as another client would."""
        change(self.objects[ref])
        self._bump(self.objects[ref])

    def delete(self, ref: ObjectRef) -> None:
        """Delete an object as a person would: it stays while finalizers hold it."""
        if self.objects[ref]["metadata"].get("finalizers"):
            self.edit(ref, lambda body: body["metadata"].update(deletionTimestamp="now"))
        else:
            del self.objects[ref]

    async def get(self, ref: ObjectRef) -> Json | None:
        """See the port."""
        self.reads += 1
        return copy.deepcopy(self.objects.get(ref))

    async def patch_metadata(self, body: Json, metadata: Json) -> Json:
        """See the port."""
        current = self._current(body)
        merged = (current["metadata"].get("annotations") or {}) | metadata.get("annotations", {})
        annotations = {name: value for name, value in merged.items() if value is not None}
        current["metadata"] |= metadata | {"annotations": annotations}
        if "deletionTimestamp" in current["metadata"] and not current["metadata"].get("finalizers"):
            del self.objects[ObjectRef.of(current)]
        return self._bump(current)

    async def patch_status(self, body: Json, status: Json) -> Json:
        """See the port."""
        current = self._current(body)
        reasons = [condition.get("reason") for condition in status["conditions"]]
        if self._strict and not all(reasons):
            raise Invalid("status.conditions[1].reason: should be at least 1 chars long", 422)
        current["status"] = merged(current.get("status"), copy.deepcopy(status))
        return self._bump(current)

    async def emit(self, body: Json, event: EventSpec) -> None:
        """See the port."""
        assert body["metadata"]["name"]
        self.events.append(event)

    def _current(self, body: Json) -> Json:
        self.before_write()
        current = self.objects.get(ObjectRef.of(body))
        if current is None:
            raise NotFound("gone", 404)
        if current["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]:
            raise Conflict("the object has been modified", 409)
        return current

    @staticmethod
    def _bump(body: Json) -> Json:
        body["metadata"]["resourceVersion"] = str(int(body["metadata"]["resourceVersion"]) + 1)
        return copy.deepcopy(body)
