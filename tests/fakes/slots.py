"""Slots for a reconciler that no queue calls."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, nullcontext

from operator_runner.core.model import ObjectRef


class NoSlots:
    """Does nothing."""

    def free_slot(self, ref: ObjectRef) -> None:
        """See `Slots`."""

    def without_slot(self, ref: ObjectRef) -> AbstractAsyncContextManager[None]:  # noqa: ARG002
        """See `Slots`."""
        return nullcontext()
