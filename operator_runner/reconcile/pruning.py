"""Prune after a run: decide whether the run was complete, and report what was deleted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

import structlog

from operator_runner.core.errors import ApiError, Fenced
from operator_runner.core.model import EventSpec, RunOutcome, Watch
from operator_runner.core.texts import truncated
from operator_runner.reconcile.dependencies import Dependencies
from operator_runner.reconcile.observer import Observer, ResourceRun
from operator_runner.reconcile.results import PruneResult, ReconcileResult

_log = structlog.get_logger(__name__)
_RETRY = timedelta(minutes=5)
"""Until the next run after a deletion that was refused."""
_SHOWN = 10
_NOTE_BYTES = 900
_WAITING = "the role asks to be run again (requeue_after)"


def _fault(outcome: RunOutcome) -> str:
    return outcome.incomplete or (_WAITING if outcome.requeue_after is not None else "")


class PruneObserver(Observer):
    """Deletes what a complete run no longer wrote. Registered for watches with `prune`."""

    def __init__(self, watch: Watch, dependencies: Dependencies) -> None:
        """`dependencies.access` deletes."""
        self._prune = watch.prune
        self._deps = dependencies

    async def played(self, run: ResourceRun, outcome: RunOutcome) -> RunOutcome:
        """See `Observer`; the outcome has a retry if need be. Raises Fenced.

        A deletion that fails is a warning and never a failure of the run.
        """
        if self._prune is None or not outcome.successful or run.is_cleanup:
            return outcome
        reason = _fault(outcome)
        try:
            result = await self._deps.access.prune(run.run_id, self._prune, reason)
        except Fenced:
            raise
        except ApiError as error:
            result = PruneResult(refused=[str(error)])
        if result.skipped:
            reason = f"the run was not complete: {reason}" if reason else "edited during the run"
            _log.info("Not pruned", reason=reason, objects=result.skipped)
        if result.deleted:
            text = _listed(map(str, result.deleted))
            _log.info("Pruned", objects=text)
            self._deps.metrics.objects_pruned(run.ref.gvk, len(result.deleted))
            await self._emit(run, "Pruned", f"Deleted {text}: no longer written by a run")
        if not result.refused:
            return outcome
        text = _listed(result.refused)
        _log.warning("Cannot prune; retrying", error=text)
        await self._emit(run, "PruneFailed", f"Cannot prune: {text}", warning=True)
        return replace(outcome, retry_after=_RETRY)

    async def ended(self, run: ResourceRun, result: ReconcileResult) -> None:
        """See `Observer`: a deletion that was refused is still to be done, with any `drift`."""
        if run.outcome is not None and run.outcome.retry_after is not None:
            run.state.is_unapplied = True

    async def _emit(
        self, run: ResourceRun, reason: str, note: str, *, warning: bool = False
    ) -> None:
        event = EventSpec(reason, note, warning, action="Prune", run_id=run.run_id)
        await self._deps.cluster.emit(run.body, event)


def _listed(texts: Iterable[str]) -> str:
    found = list(texts)
    more = len(found) - _SHOWN
    shown = [*found[:_SHOWN], f"and {more} more"] if more > 0 else found
    return truncated(", ".join(shown), _NOTE_BYTES)
