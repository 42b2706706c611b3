"""The interface of traces, and its implementation without traces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from operator_runner.core.model import Cause, Json, ObjectRef


class ReconcileTrace(Protocol):
    """The trace of one reconcile."""

    @property
    def exemplar(self) -> Mapping[str, str] | None:
        """Labels of exemplars in metrics; None if the trace is not exported."""

    def end(self, result: str, error: str | None = None) -> None:
        """Record the result; `error` is the message of a failure, None for others."""


class Traces(Protocol):
    """Records traces; no method raises or blocks."""

    def reconcile(
        self, ref: ObjectRef, causes: Sequence[Cause], waited: float
    ) -> AbstractContextManager[ReconcileTrace]:
        """Trace the reconcile of the block, which was due `waited` seconds ago.

        Log lines of the block have the ids of the trace.
        """

    def run_environment(self, run_id: str) -> Mapping[str, str]:
        """Begin the span of a run of the current reconcile; return variables that refer to it."""

    def run_ended(self, document: Json) -> None:
        """End the span of that run, and add what its record has."""


class _NoTrace:
    """See `ReconcileTrace`."""

    exemplar: Mapping[str, str] | None = None

    def end(self, result: str, error: str | None = None) -> None:
        """See `ReconcileTrace`."""


class NoTraces:
    """Records nothing; see `Traces`."""

    @contextmanager
    def reconcile(
        self, _ref: ObjectRef, _causes: Sequence[Cause], _waited: float
    ) -> Iterator[ReconcileTrace]:
        """See `Traces`."""
        yield _NoTrace()

    def run_environment(self, _run_id: str) -> Mapping[str, str]:
        """See `Traces`."""
        return {}

    def run_ended(self, _document: Json) -> None:
        """See `Traces`."""
