"""Evaluate the label selector, `when` and `blockUpgrade` of a watch for a resource."""

from __future__ import annotations

import structlog

from operator_runner.config.watches.expressions import evaluate, is_true
from operator_runner.config.watches.versions import belongs_to
from operator_runner.core.labels import match_labels
from operator_runner.core.model import Json, Watch

_log = structlog.get_logger(__name__)


def is_relevant(body: Json, watch: Watch) -> bool:
    """Return whether the resource is chosen.

    If `when` cannot be evaluated, for example length() of a missing field, the result is False
    and a warning is logged.
    """
    metadata = body["metadata"]
    if not belongs_to(body, watch):
        return False
    if not match_labels(watch.selector, metadata.get("labels") or {}):
        return False
    if watch.when is None:
        return True
    try:
        return is_true(evaluate(watch.when, body))
    except ValueError as error:
        _log.warning(
            "Cannot evaluate `when` of watches.yaml; ignoring the resource",
            gvk=str(watch.gvk),
            namespace=metadata.get("namespace"),
            name=metadata["name"],
            error=str(error),
        )
        return False


def blocks_upgrade(body: Json, watch: Watch) -> bool:
    """Return whether a run of the resource must not be broken by an upgrade of the operator.

    If `blockUpgrade` cannot be evaluated, the result is True and a warning is logged.
    """
    if watch.block_upgrade is None:
        return False
    try:
        return is_true(evaluate(watch.block_upgrade, body))
    except ValueError as error:
        metadata = body["metadata"]
        _log.warning(
            "Cannot evaluate `blockUpgrade` of watches.yaml; the run blocks upgrades",
            gvk=str(watch.gvk),
            namespace=metadata.get("namespace"),
            name=metadata["name"],
            error=str(error),
        )
        return True
