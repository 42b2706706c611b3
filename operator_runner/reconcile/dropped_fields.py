"""Find the fields of resources that are not passed to the role, and report them once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from operator_runner.core.model import Json, ObjectRef, RunContent, Watch, uid_of
from operator_runner.reconcile.protocols import VariableNames
from operator_runner.reconcile.reserved_fields import (
    ReservationReason,
    ReservedField,
    dropped,
    reported,
    reserved_fields,
)
from operator_runner.reconcile.status import generation_of


class DroppedFields:
    """Finds fields of the resources of one watch, and remembers which are reported."""

    def __init__(
        self,
        watch: Watch,
        names: VariableNames,
        report: Callable[[Json, Sequence[ReservedField]], Awaitable[None]],
    ) -> None:
        """`report` is called with a resource and the fields to report."""
        self._watch = watch
        self._names = names
        self._report = report
        # uid, generation and names for which fields were last reported; the data of a kind
        # without generations may get others.
        self._reported: dict[ObjectRef, tuple[str, int, frozenset[str]]] = {}

    async def find(self, ref: ObjectRef, body: Json, content: RunContent) -> frozenset[str]:
        """Return the fields with reserved names; report them once per generation.

        Raises RunError if the reserved names cannot be listed.
        """
        names = await self._names.reserved()
        fields: Sequence[ReservedField] = reserved_fields(body, self._watch, names)
        if any(field.use is ReservationReason.KEYWORD for field in fields):
            fields = dropped(fields, await self._names.declared(content))
        names_dropped = frozenset(field.name for field in fields)
        state = (uid_of(body), generation_of(body), names_dropped)
        to_report = reported(fields, self._watch.gvk)
        if to_report and self._reported.get(ref) != state:
            await self._report(body, to_report)
            self._reported[ref] = state
        return names_dropped

    def forget(self, ref: ObjectRef) -> None:
        """Forget a resource."""
        self._reported.pop(ref, None)
