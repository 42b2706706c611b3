"""Hold suspended resources, and answer requested runs: what users ask for by annotations."""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from operator_runner.core.errors import ApiError
from operator_runner.core.model import Json, ObjectRef, Trigger
from operator_runner.reconcile import conditions as base
from operator_runner.reconcile.annotations import (
    REQUEST_ANNOTATION,
    SUSPEND_ANNOTATION,
    HandledRequest,
    RequestResult,
    annotations_of,
    pending_request,
)
from operator_runner.reconcile.conditions import waiting_text
from operator_runner.reconcile.decide import Suspend
from operator_runner.reconcile.metadata_patches import change_metadata
from operator_runner.reconcile.observer import Observer, Phase, ResourceRun
from operator_runner.reconcile.protocols import ClusterClient
from operator_runner.reconcile.report import Reporter
from operator_runner.reconcile.results import Failed, NoRun, ReconcileResult, Succeeded, Superseded

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _SuspensionSlot:
    logged: str = ""


class SuspensionObserver(Observer):
    """Holds suspended resources; their condition has the cause and what waits."""

    def __init__(self, reporter: Reporter) -> None:
        """Write the condition with `reporter`."""
        self._reporter = reporter
        self.marks = {SUSPEND_ANNOTATION, base.SUSPENDED, _SuspensionSlot}

    async def hold(self, run: ResourceRun) -> NoRun | None:
        """See `Observer`."""
        if not isinstance(run.action, Suspend):
            return None
        run.state.is_suspended = True
        run.message = _text(run.ref, run.action.finalizer)
        slot = run.state.slot(_SuspensionSlot)
        if slot.logged != run.message:
            _log.info("Suspended", reason=run.message)
            slot.logged = run.message
        await self._reporter.write(run, Phase.SUSPENDED)
        return NoRun("Resource is suspended")

    async def begin(self, run: ResourceRun) -> None:
        """See `Observer`."""
        run.state.is_suspended = False
        run.state.drop(_SuspensionSlot)

    def conditions(self, run: ResourceRun, phase: Phase, conditions: list[Json]) -> list[Json]:
        """See `Observer`; `started` and `finished` remove the condition."""
        if phase is Phase.SUSPENDED:
            return base.suspended(conditions, run.message, run.generation, run.now)
        return base.resumed(conditions) if phase is Phase.RESUMED else conditions


def _text(ref: ObjectRef, finalizer: str) -> str:
    """Return the message of the condition Suspended: the cause, what waits, and a hint."""
    place = f" --namespace {ref.namespace}" if ref.namespace else ""
    resume = f"operator-runner resume {ref.full_name}{place}"
    text = f"No run starts because of the annotation {SUSPEND_ANNOTATION}"
    if finalizer:
        text = f"{text}, and the deletion waits for the finalizer {finalizer}"
    return f"{text}; to resume: {resume}"


class RequestObserver(Observer):
    """Records the end of runs that annotations of resources requested."""

    def __init__(self, cluster: ClusterClient) -> None:
        """Take the cluster to write to."""
        self._cluster = cluster
        self.marks = {REQUEST_ANNOTATION}

    async def ended(self, run: ResourceRun, result: ReconcileResult) -> None:
        """See `Observer`. A superseded run does not count: the next one follows at once."""
        request = pending_request(annotations_of(run.body))
        if not request or isinstance(result, Superseded):
            return
        answer = _answer_to(request, result, run.run_id)
        try:
            await change_metadata(self._cluster, run.ref, run.uid, lambda _: answer.patch())
        except ApiError as error:
            # The run itself is reported, and the resource must not be run again for this.
            _log.warning("Cannot answer the request", request=request, error=str(error))


def _answer_to(request: str, result: ReconcileResult, run_id: str) -> HandledRequest:
    """Return how a requested run has ended."""
    match result:
        case Failed(message=message) | NoRun(reason=message, failed=True):
            return HandledRequest(request, RequestResult.FAILED, message, run_id)
        case Succeeded(after=after, trigger=Trigger.REQUEUE) if after is not None:
            return HandledRequest(request, RequestResult.REQUEUED, waiting_text(after), run_id)
        case _:
            return HandledRequest(request, RequestResult.SUCCEEDED, "", run_id)
