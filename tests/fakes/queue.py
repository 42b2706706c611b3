"""The queue of a reconciler that no queue calls."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, nullcontext

from operator_runner.core.model import ObjectRef


class NoQueue:
    """Records whose backoff is reset."""

    def __init__(self) -> None:
        """Start empty."""
        self.forgotten: list[ObjectRef] = []

    def forget(self, ref: ObjectRef) -> None:
        """See `Queue`."""
        self.forgotten.append(ref)

    def free_slot(self, ref: ObjectRef) -> None:
        """See `Queue`."""

    def without_slot(self, ref: ObjectRef) -> AbstractAsyncContextManager[None]:  # noqa: ARG002
        """See `Queue`."""
        return nullcontext()
