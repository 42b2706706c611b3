"""Whether a watch wants a resource reconciled: its label selector and its `when`."""

from __future__ import annotations

import structlog

from operator_runner.model import Json, Watch
from operator_runner.watches.expressions import evaluate, is_true
from operator_runner.watches.selector import match_labels

_log = structlog.get_logger(__name__)


def is_relevant(body: Json, watch: Watch) -> bool:
    """Return whether the resource is chosen.

    Where `when` cannot be evaluated, say for length() of a missing field, the answer is no,
    and a warning tells why.
    """
    metadata = body["metadata"]
    if not match_labels(watch.selector, metadata.get("labels") or {}):
        return False
    if watch.when is None:
        return True
    try:
        return is_true(evaluate(watch.when, body))
    except ValueError as error:
        _log.warning(
            "Cannot evaluate when of watches.yaml; the resource is left alone",
            gvk=str(watch.gvk),
            namespace=metadata.get("namespace"),
            name=metadata["name"],
            error=str(error),
        )
        return False
