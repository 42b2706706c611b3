"""Read the annotations by which users suspend a resource and request runs of it. Pure.

Example:
    metadata:
      annotations:
        operator-runner.dev/suspend: "true"
        operator-runner.dev/requested-at: 2026-01-05T12:03:04.000001Z
        operator-runner.dev/reset-at: 2026-01-05T12:03:04.000001Z

As in Flux, a request is new as long as its value is not that of the last one that was handled.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass

from operator_runner.core.model import ANNOTATION_DOMAIN, APPLYSET_DOMAIN, Json
from operator_runner.core.truncation import truncated

SUSPEND_ANNOTATION = f"{ANNOTATION_DOMAIN}/suspend"
"""`true`, or `cancel` to end the current run too."""
REQUEST_ANNOTATION = f"{ANNOTATION_DOMAIN}/requested-at"
"""A new value requests a run."""
RESET_ANNOTATION = f"{ANNOTATION_DOMAIN}/reset-at"
"""With the value of the request: the backoff begins again."""
HANDLED_ANNOTATION = f"{ANNOTATION_DOMAIN}/last-handled-request"
"""Written by the operator: the last request whose run has ended, and its result, as JSON."""
DRIFT_ANNOTATION = f"{ANNOTATION_DOMAIN}/drift"
"""`enforce`, `warn` or `ignore`: overrides `drift` of the watch for one resource."""
APPLYSET_ID, APPLYSET_TOOLING, APPLYSET_KINDS, APPLYSET_NAMESPACES = (
    f"{APPLYSET_DOMAIN}/{name}"
    for name in ("id", "tooling", "contains-group-kinds", "additional-namespaces")
)
"""Written by the operator with `prune`: where the members of the resource are, see KEP-3659."""
PRUNE_ANNOTATION = f"{ANNOTATION_DOMAIN}/prune"
"""`disabled` at an object: it is never pruned."""
ANNOTATIONS = frozenset(
    {
        APPLYSET_ID,
        APPLYSET_TOOLING,
        APPLYSET_KINDS,
        APPLYSET_NAMESPACES,
        SUSPEND_ANNOTATION,
        REQUEST_ANNOTATION,
        RESET_ANNOTATION,
        HANDLED_ANNOTATION,
        DRIFT_ANNOTATION,
    }
)
"""Changes of these are not changes of the resource."""

SUSPENDED, RESUMED = "suspended", "resumed"
REQUESTED, RETRY_REQUESTED = "run requested", "retry requested"
DRIFT_POLICY_CHANGED = "drift policy changed"
"""Details of causes."""
_MAX_ID_CHARACTERS = 128
_MAX_MESSAGE_BYTES = 1024
_MAX_ANSWER_CHARACTERS = 8192
"""Maximum of the JSON text, in which a character of the message may take six."""


class Suspension(enum.Enum):
    """Whether runs of a resource may start, and whether the current one is ended."""

    NONE = ""
    TRUE = "true"
    CANCEL = "cancel"


class RequestResult(enum.StrEnum):
    """Result of a requested run. REQUEUED: it succeeded, and the role requested another run."""

    SUCCEEDED = "succeeded"
    REQUEUED = "requeued"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class HandledRequest:
    """A request whose run has ended; `run_id` is empty if no run could be started."""

    id: str
    result: RequestResult
    message: str = ""
    run_id: str = ""

    def patch(self) -> Json:
        """Return the merge patch of the metadata that records it."""
        value = {"id": self.id, "result": self.result.value, "runID": self.run_id}
        if self.message:
            value["message"] = truncated(self.message, _MAX_MESSAGE_BYTES)
        return {"annotations": {HANDLED_ANNOTATION: json.dumps(value)}}


def annotations_of(body: Json) -> Mapping[str, str]:
    """Return the annotations of an object."""
    annotations: Mapping[str, str] = body["metadata"].get("annotations") or {}
    return annotations


def suspension(annotations: Mapping[str, str]) -> Suspension:
    """Return the suspension; Suspension.NONE for other values, such as `false`.

    In any case of letters: `True` is what a template or a script writes.
    """
    text = annotations.get(SUSPEND_ANNOTATION, "").lower()
    return next((each for each in Suspension if each.value == text), Suspension.NONE)


def pending_request(annotations: Mapping[str, str]) -> str:
    """Return the id of the request that was not handled yet, empty if there is none."""
    wanted = annotations.get(REQUEST_ANNOTATION) or ""
    if not wanted or len(wanted) > _MAX_ID_CHARACTERS:
        return ""
    handled = handled_request(annotations)
    return wanted if handled is None or handled.id != wanted else ""


def handled_request(annotations: Mapping[str, str]) -> HandledRequest | None:
    """Return the last request that was handled, or None if it is invalid or missing."""
    try:
        value = json.loads(annotations.get(HANDLED_ANNOTATION, "")[:_MAX_ANSWER_CHARACTERS])
        return HandledRequest(
            str(value["id"]),
            RequestResult(value["result"]),
            str(value.get("message") or ""),
            str(value.get("runID") or ""),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def requested_change(old: Mapping[str, str], new: Mapping[str, str]) -> str:
    """Return what a user requests by these new annotations, empty for nothing: a cause's detail."""
    before, after = suspension(old), suspension(new)
    if before is not after:
        return SUSPENDED if after is not Suspension.NONE else RESUMED
    request = new.get(REQUEST_ANNOTATION)
    if not pending_request(new) or request == old.get(REQUEST_ANNOTATION):
        is_same = old.get(DRIFT_ANNOTATION) == new.get(DRIFT_ANNOTATION)
        return "" if is_same else DRIFT_POLICY_CHANGED
    return RETRY_REQUESTED if new.get(RESET_ANNOTATION) == request else REQUESTED
