"""Choose the next step for one resource. Pure: no I/O, no clock, no logging."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from operator_runner.config.watches.selection import cleans_up
from operator_runner.core.model import Cause, Json, Trigger, Watch
from operator_runner.reconcile.annotations import (
    DRIFT_POLICY_CHANGED,
    ERROR_CHANGED,
    wants_suspension,
)

_UNCHANGED = frozenset({Trigger.START, Trigger.DEPENDENT, Trigger.PERIOD, Trigger.RETRY})
_SETTINGS = frozenset({DRIFT_POLICY_CHANGED, ERROR_CHANGED})
"""Details of causes that change when or how the resource is run, not what it asks for."""
ONCE = Cause(Trigger.START, "--once")
"""Cause of `run --once`: a request of a user, so that the role writes with every policy."""
ON_REQUEST = Cause(Trigger.START, "on request")
"""Cause of a reconcile by a test of a role: it writes too, unless its inputs are unchanged."""


@dataclass(frozen=True, slots=True)
class Ignore:
    """Do nothing, for this reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class AddMetadata:
    """Add what is missing before the first run, in one patch; None is present or not declared.

    The finalizer, so that no deletion skips the clean-up, and the annotation of `deselection`,
    which shows that the resource has been run.
    """

    finalizer: str | None = None
    annotation: str | None = None

    def patch(self, metadata: Json) -> Json:
        """Return the merge patch of this metadata."""
        patch: Json = {}
        if self.finalizer is not None:
            patch["finalizers"] = [*(metadata.get("finalizers") or ()), self.finalizer]
        if self.annotation is not None:
            patch["annotations"] = {self.annotation: "true"}
        return patch


@dataclass(frozen=True, slots=True)
class Run:
    """Run the play, or the clean-up of a resource that is being deleted."""

    cleanup: bool


@dataclass(frozen=True, slots=True)
class RunDeselection:
    """Run the `deselection` of the watch."""


@dataclass(frozen=True, slots=True)
class Suspend:
    """Run nothing until the annotation is removed; `finalizer` waits for that."""

    finalizer: str = ""


Action: TypeAlias = Ignore | AddMetadata | Run | RunDeselection | Suspend


def decide(body: Json, watch: Watch, *, selected: bool, deselected: bool = False) -> Action:
    """Return exactly one action for the resource as it is now.

    `selected` is whether the watch's selector and `when` match the resource, `deselected` whether
    they no longer do and the watch has something to run for that. A resource that is being deleted
    is cleaned up in any case: its finalizer shows that it was selected before. If it was written in
    another version whose watch has that finalizer too, that one cleans up. While a resource is
    suspended, nothing runs, and its finalizer stays.
    """
    metadata = body["metadata"]
    finalizer = watch.finalizer.name if watch.finalizer else None
    annotation = watch.deselection.annotation if watch.deselection else None
    has_finalizer = finalizer in (metadata.get("finalizers") or ())
    if metadata.get("deletionTimestamp"):
        return _decide_deletion(body, watch, finalizer if has_finalizer else None)
    if not (selected or deselected):
        return Ignore("Resource does not match selector or when")
    if wants_suspension(body):
        return Suspend()
    if not selected:
        return RunDeselection()
    missing = AddMetadata(
        None if has_finalizer else finalizer,
        None if annotation in (metadata.get("annotations") or {}) else annotation,
    )
    return Run(cleanup=False) if missing == AddMetadata() else missing


def _decide_deletion(body: Json, watch: Watch, finalizer: str | None) -> Action:
    """Return the action for a resource that is being deleted and has this finalizer."""
    if finalizer is None:
        # The API server rejects finalizers that are added during deletion.
        return Ignore("Resource is terminated")
    if not cleans_up(body, watch):
        return Ignore("Resource belongs to the watch of another version")
    return Suspend(finalizer) if wants_suspension(body) else Run(cleanup=True)


def has_change(causes: Iterable[Cause]) -> bool:
    """Return whether a cause is a change of what the resource asks for, or a request."""
    return any(
        cause == ONCE or (cause.trigger not in _UNCHANGED and cause.detail not in _SETTINGS)
        for cause in causes
    )
