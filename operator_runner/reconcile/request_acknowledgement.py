"""Answer the runs that annotations of resources request."""

from __future__ import annotations

import structlog

from operator_runner.core.errors import ApiError
from operator_runner.core.model import Trigger
from operator_runner.reconcile.conditions import waiting_text
from operator_runner.reconcile.metadata_patches import change_metadata
from operator_runner.reconcile.observer import Observer, ResourceRun
from operator_runner.reconcile.protocols import ClusterClient
from operator_runner.reconcile.request_annotations import (
    HandledRequest,
    RequestResult,
    annotations_of,
    pending_request,
)
from operator_runner.reconcile.results import Failed, NoRun, ReconcileResult, Succeeded, Superseded

_log = structlog.get_logger(__name__)


class RequestObserver(Observer):
    """Records the end of runs that annotations of resources requested."""

    def __init__(self, cluster: ClusterClient) -> None:
        """Take the cluster to write to."""
        self._cluster = cluster

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
