"""Change the metadata of a resource after a run: remove its finalizer, or its annotation."""

from __future__ import annotations

from collections.abc import Callable

from operator_runner.core.errors import Conflict, NotFound
from operator_runner.core.model import Json, ObjectRef, uid_of
from operator_runner.reconcile.protocols import ClusterClient


def without_finalizer(metadata: Json, name: str) -> Json:
    """Return the merge patch that removes a finalizer, empty without that finalizer."""
    finalizers = metadata.get("finalizers") or []
    left = [finalizer for finalizer in finalizers if finalizer != name]
    return {"finalizers": left} if left != finalizers else {}


def without_annotation(metadata: Json, name: str) -> Json:
    """Return the merge patch that removes an annotation, empty without that annotation."""
    return {"annotations": {name: None}} if name in (metadata.get("annotations") or {}) else {}


async def change_metadata(
    cluster: ClusterClient, ref: ObjectRef, uid: str, change: Callable[[Json], Json]
) -> bool:
    """Apply the merge patch that `change` returns for the current metadata; repeat on conflict.

    Returns False if nothing is to be changed or the resource with this uid is deleted. Raises
    ApiError.
    """
    while (body := await cluster.get(ref)) is not None:
        patch = change(body["metadata"])
        if uid_of(body) != uid or not patch:
            return False
        try:
            await cluster.patch_metadata(body, patch)
        except Conflict:
            continue
        except NotFound:
            return False
        return True
    return False
