"""`run --once`: which resource is reconciled, and the exit status of its reconcile."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from operator_runner.config.watches.relevance import is_relevant
from operator_runner.core.errors import ApiError, ConfigError
from operator_runner.core.model import Json, ObjectRef, RunContent, Watch
from operator_runner.kube.cluster import KubeCluster
from operator_runner.kube.discovery import Discovery
from operator_runner.reconcile.results import Gone, Idle, ReconcileResult, Succeeded

_log = structlog.get_logger(__name__)


async def find_resource(
    kind: str,
    name: str,
    *,
    namespace: str,
    watches: Sequence[Watch],
    discovery: Discovery,
    cluster: KubeCluster,
) -> ObjectRef:
    """Return the resource with this kind and name, in the version of its watch.

    Raises ConfigError for a kind that no watch has.
    """
    found: list[ObjectRef] = []
    for watch in watches:
        try:
            resource = await discovery.resource(watch.gvk)
        except ApiError as error:
            raise ConfigError(f"--once: {error}") from error
        if resource.is_called(kind):
            key = ObjectRef(watch.gvk, namespace if resource.namespaced else "", name)
            found.append(key)
            body = await cluster.get(key)
            if body is not None and is_relevant(body, watch):
                return key
    if not found:
        kinds = ", ".join(dict.fromkeys(watch.gvk.kind for watch in watches))
        raise ConfigError(f"--once: {kind} is not a kind of the watches file, which has {kinds}")
    return found[0]


def content_of(key: ObjectRef, body: Json | None, watches: Sequence[Watch]) -> RunContent | None:
    """Return the role or playbook of the next run of a resource, None if nothing is to be run."""
    chosen = (each for each in watches if each.gvk == key.gvk and body and is_relevant(body, each))
    watch = next(chosen, None)
    if watch is None or body is None:
        return None
    return watch.content_for(cleanup=bool(body["metadata"].get("deletionTimestamp")))


def exit_status(key: ObjectRef, result: ReconcileResult) -> int:
    """Return the exit status of `--once`; log why nothing was run."""
    match result:
        case Succeeded() | Idle(reason=""):
            return 0
        case Idle(reason=reason):
            _log.error("Nothing was run", resource=str(key), reason=reason)
        case Gone():
            _log.error("Nothing was run", resource=str(key), reason="Resource does not exist")
    return 1
