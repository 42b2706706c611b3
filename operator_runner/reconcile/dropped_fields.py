"""Find the fields of resources that are not passed to the role, and report them once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from operator_runner.core.model import EventSpec
from operator_runner.reconcile import reserved_fields
from operator_runner.reconcile.dependencies import Dependencies
from operator_runner.reconcile.observer import Observer, ResourceRun
from operator_runner.reconcile.reserved_fields import ReservationReason, ReservedField

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _DroppedSlot:
    reported: tuple[int, frozenset[str]] | None = None
    """Generation and names for which fields were last reported; the data of a kind without
    generations may get others."""


class DroppedFieldsObserver(Observer):
    """Keeps fields with reserved names from the role; reports them once per generation."""

    def __init__(self, dependencies: Dependencies) -> None:
        """`dependencies.variable_names` has the names that are reserved."""
        self._names = dependencies.variable_names
        self._cluster = dependencies.cluster

    async def begin(self, run: ResourceRun) -> None:
        """See `Observer`."""
        names = await self._names.reserved()
        fields: Sequence[ReservedField]
        fields = reserved_fields.reserved_fields(run.body, run.watch, names)
        if any(field.use is ReservationReason.KEYWORD for field in fields):
            content = run.watch.content_for(cleanup=run.is_deletion)
            fields = reserved_fields.dropped(fields, await self._names.declared(content))
        run.excluded = frozenset(field.name for field in fields)
        found, slot = (run.generation, run.excluded), run.state.slot(_DroppedSlot)
        to_report = reserved_fields.reported(fields, run.ref.gvk)
        if to_report and slot.reported != found:
            paths, hint = reserved_fields.paths(to_report), reserved_fields.hint(to_report)
            _log.warning(
                "Fields of the resource are not passed to the role", fields=paths, hint=hint
            )
            note = reserved_fields.note(to_report)
            event = EventSpec("ReservedFieldNames", note, warning=True)
            await self._cluster.emit(run.body, event)
            slot.reported = found
