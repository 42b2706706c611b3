"""Read the annotations of a resource: overrides of settings, suspension, requests of runs. Pure.

Example:
    metadata:
      annotations:
        ansible.sdk.operatorframework.io/reconcile-period: 5m
        ansible.sdk.operatorframework.io/max-runner-artifacts: "50"
        ansible.sdk.operatorframework.io/verbosity: "4"
        operator-runner.dev/suspend: "true"
        operator-runner.dev/requested-at: 2026-01-05T12:03:04.000001Z
        operator-runner.dev/reset-at: 2026-01-05T12:03:04.000001Z

As in Flux, a request is new as long as its value is not that of the last one that was handled.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from operator_runner.core.durations import parse_duration
from operator_runner.core.model import ANNOTATION_DOMAIN, APPLYSET_DOMAIN, Drift, Json
from operator_runner.core.texts import truncated

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


def wants_suspension(body: Json) -> bool:
    """Return whether an annotation suspends the runs of a resource."""
    return suspension(annotations_of(body)) is not Suspension.NONE


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


ERROR_CHANGED = "invalid annotation changed"
"""Detail of the cause for an edit of an annotation with which the resource was not run."""
_PREFIX = "ansible.sdk.operatorframework.io/"
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
_MAX_VERBOSITY = 7
_MAX_ARTIFACTS = 100
"""Users with write access to a resource could fill the disk of the operator."""
_POLICIES = tuple(each.value for each in Drift)
_SHOWN = 40
_MIN_PERIOD = timedelta(seconds=1)
"""Minimum period; shorter ones of flags, watches and annotations are raised to it."""


@dataclass(frozen=True, slots=True)
class Overrides:
    """Settings of one resource; each that is not None replaces that of the watch and the flags."""

    period: timedelta | None = None
    """Time between two periodic runs; zero disables them."""
    artifacts: int | None = None
    """Number of runs whose artifacts are kept, 1..100."""
    verbosity: int | None = None
    """Number of v in -vvv, 0..7."""
    error: str = ""
    """The error of invalid annotations, with which the resource is not run; else empty."""


def read_overrides(body: Json, *, as_job: bool = False) -> Overrides:
    """Return the overrides of a resource; invalid numbers are ignored.

    `as_job` is whether runs are Jobs: their plays cannot be previewed.

    An invalid period is an error, as in ansible-operator. So is an invalid policy of drift, because
    the default policy may write what the user wants to keep.
    """
    annotations = body["metadata"].get("annotations") or {}
    period, error = None, ""
    if (text := annotations.get(f"{_PREFIX}reconcile-period")) is not None:
        try:
            period = max(parse_duration(text), timedelta(0))
        except ValueError as problem:
            error = f"Unable to parse reconcile period annotation: {problem}"
    if (policy := annotations.get(DRIFT_ANNOTATION)) is not None and policy not in _POLICIES:
        error = error or (
            f"annotation {DRIFT_ANNOTATION}: {policy[:_SHOWN]!r} is not one of"
            f" {', '.join(_POLICIES)}"
        )
    if as_job and policy == Drift.WARN.value:
        error = error or (
            f"annotation {DRIFT_ANNOTATION}: {policy!r} cannot be used for runs that are Jobs;"
            " write 'enforce' or 'ignore'"
        )
    artifacts = _integer(annotations.get(f"{_PREFIX}max-runner-artifacts"))
    verbosity = _integer(annotations.get(f"{_PREFIX}verbosity"))
    return Overrides(
        period=period,
        artifacts=None if artifacts is None else _kept(artifacts),
        verbosity=None if verbosity is None else min(max(verbosity, 0), _MAX_VERBOSITY),
        error=error,
    )


def _kept(artifacts: int) -> int:
    """Return how many artifacts are kept; 0 and less is all of them, up to the maximum."""
    return min(artifacts, _MAX_ARTIFACTS) if artifacts > 0 else _MAX_ARTIFACTS


def clamp_period(period: timedelta) -> timedelta:
    """Return the period, at least a second; zero stays zero."""
    return max(period, _MIN_PERIOD) if period > timedelta(0) else timedelta(0)


def _integer(text: str | None) -> int | None:
    return int(text) if text is not None and _INTEGER.fullmatch(text) else None
