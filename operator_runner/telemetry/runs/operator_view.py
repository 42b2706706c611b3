"""The view of a running operator for the HTTP API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from operator_runner.core.model import Json, ObjectRef
from operator_runner.core.operator_state import DriftEntry, QueueEntry, ScheduleEntry


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
