"""Evaluate the label selector, `when` and `blockUpgrade` of a watch for a resource."""

from __future__ import annotations

import structlog

from operator_runner.config.watches.expressions import evaluate, is_true
from operator_runner.config.watches.versions import belongs_to
from operator_runner.core.labels import match_labels
from operator_runner.core.model import Json, Watch

_log = structlog.get_logger(__name__)


def is_selected(body: Json, watch: Watch) -> bool:
    """Return whether the resource is chosen.

    If `when` cannot be evaluated, for example length() of a missing field, the result is False
    and a warning is logged.
    """
    metadata = body["metadata"]
    try:
        return belongs_to(body, watch) and _matches(body, watch)
    except ValueError as error:
        _log.warning(
            "Cannot evaluate `when` of watches.yaml; ignoring the resource",
            gvk=str(watch.gvk),
            namespace=metadata.get("namespace"),
            name=metadata["name"],
            error=str(error),
        )
        return False


def is_deselected(body: Json, watch: Watch) -> bool:
    """Return whether the watch's `deselection` has to run for the resource.

    It has been run before, as its annotation shows, and selector and `when` no longer match.
    A resource of another version's watch is not deselected, nor one for which `when` cannot be
    evaluated: `is_selected` logs that.
    """
    if watch.deselection is None:
        return False
    if watch.deselection.annotation not in (body["metadata"].get("annotations") or {}):
        return False
    try:
        return belongs_to(body, watch) and not _matches(body, watch)
    except ValueError:
        return False


def _matches(body: Json, watch: Watch) -> bool:
    """Return whether selector and `when` match. Raises ValueError if `when` has no value."""
    if not match_labels(watch.selector, body["metadata"].get("labels") or {}):
        return False
    return watch.when is None or is_true(evaluate(watch.when, body))


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
