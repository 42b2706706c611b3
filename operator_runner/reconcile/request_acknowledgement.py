"""Answer the runs that annotations of resources request."""

from __future__ import annotations

import structlog

from operator_runner.core.errors import ApiError
from operator_runner.core.model import Json, ObjectRef, Trigger, uid_of
from operator_runner.reconcile.conditions import waiting_text
from operator_runner.reconcile.metadata_patches import change_metadata
from operator_runner.reconcile.protocols import ClusterClient
from operator_runner.reconcile.request_annotations import (
    HandledRequest,
    RequestResult,
    annotations_of,
    pending_request,
)
from operator_runner.reconcile.results import Failed, ReconcileResult, Succeeded, Superseded

_log = structlog.get_logger(__name__)


async def acknowledge_request(
    cluster: ClusterClient, ref: ObjectRef, body: Json, result: ReconcileResult, run_id: str = ""
) -> None:
    """Record the end of the run that an annotation of `body` requested, if one did.

    A superseded run does not count: the next one follows at once.
    """
    request = pending_request(annotations_of(body))
    if not request or isinstance(result, Superseded):
        return
    answer = _answer_to(request, result, run_id)
    try:
        await change_metadata(cluster, ref, uid_of(body), lambda _: answer.patch())
    except ApiError as error:
        # The run itself is reported, and the resource must not be run again for this.
        _log.warning("Cannot answer the request", request=request, error=str(error))


def _answer_to(request: str, result: ReconcileResult, run_id: str) -> HandledRequest:
    """Return how a requested run has ended."""
    match result:
        case Failed(message=message):
            return HandledRequest(request, RequestResult.FAILED, message, run_id)
        case Succeeded(after=after, trigger=Trigger.REQUEUE) if after is not None:
            return HandledRequest(request, RequestResult.REQUEUED, waiting_text(after), run_id)
        case _:
            return HandledRequest(request, RequestResult.SUCCEEDED, "", run_id)
