"""Prune after a run: decide whether the run was complete, and report what was deleted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, TypeAlias

import structlog

from operator_runner.core.errors import ApiError, Fenced
from operator_runner.core.model import EventSpec, ObjectRef, Prune, RunOutcome
from operator_runner.core.truncation import truncated

if TYPE_CHECKING:
    from operator_runner.reconcile.dependencies import Dependencies
    from operator_runner.reconcile.play import PendingRun

_log = structlog.get_logger(__name__)
_RETRY = timedelta(minutes=5)
"""Until the next run after a deletion that was refused."""
_SHOWN = 10
_NOTE_BYTES = 900
_WAITING = "the role asks to be run again (requeue_after)"


@dataclass(slots=True)
class PruneResult:
    """The objects that were deleted, and why others were not: object and error, or kind and error.

    `skipped` are those that a run which was not complete did not write. `version` is the new
    resourceVersion of the resource, empty if it was not written.
    """

    deleted: list[ObjectRef] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    skipped: int = 0
    version: str = ""


PruneFunction: TypeAlias = Callable[[str, Prune, str], Awaitable[PruneResult]]
"""Deletes what the run with an id no longer wants; with a reason, only counts that."""


def is_complete(outcome: RunOutcome) -> bool:
    """Return whether a run has written all that its resource asks for."""
    return outcome.successful and not _fault(outcome)


def _fault(outcome: RunOutcome) -> str:
    return outcome.incomplete or (_WAITING if outcome.requeue_after is not None else "")


async def prune_after(
    dependencies: Dependencies, pending: PendingRun, outcome: RunOutcome
) -> RunOutcome:
    """Delete what a complete run no longer wrote; return the outcome, with a retry if need be.

    A deletion that fails is a warning and never a failure of the run. Raises Fenced.
    """
    prune, run = pending.watch.prune, dependencies.prune
    is_cleanup = pending.cleanup or pending.deselection
    if prune is None or run is None or not outcome.successful or is_cleanup:
        return outcome
    reason = _fault(outcome)
    try:
        result = await run(pending.run_id, prune, reason)
    except Fenced:
        raise
    except ApiError as error:
        result = PruneResult(refused=[str(error)])
    if result.skipped:
        _log.info("Not pruned: the run was not complete", reason=reason, objects=result.skipped)
    if result.deleted:
        text = _listed(map(str, result.deleted))
        _log.info("Pruned", objects=text)
        dependencies.on_pruned(pending.ref.gvk, len(result.deleted))
        await _emit(dependencies, pending, "Pruned", f"Deleted {text}: no longer written by a run")
    if not result.refused:
        return outcome
    text = _listed(result.refused)
    _log.warning("Cannot prune; retrying", error=text)
    await _emit(dependencies, pending, "PruneFailed", f"Cannot prune: {text}", warning=True)
    return replace(outcome, retry_after=_RETRY)


async def _emit(
    dependencies: Dependencies,
    pending: PendingRun,
    reason: str,
    note: str,
    *,
    warning: bool = False,
) -> None:
    event = EventSpec(reason, note, warning, action="Prune", run_id=pending.run_id)
    await dependencies.cluster.emit(pending.body, event)


def _listed(texts: Iterable[str]) -> str:
    found = list(texts)
    more = len(found) - _SHOWN
    shown = [*found[:_SHOWN], f"and {more} more"] if more > 0 else found
    return truncated(", ".join(shown), _NOTE_BYTES)
