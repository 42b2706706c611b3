"""Choose the next step for one resource. Pure: no I/O, no clock, no logging."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from operator_runner.core.model import Json, Watch


@dataclass(frozen=True, slots=True)
class Skip:
    """Do nothing, for this reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class AddFinalizer:
    """Add the finalizer before the first run, so that no deletion skips the clean-up."""

    name: str


@dataclass(frozen=True, slots=True)
class Run:
    """Run the play, or the clean-up of a resource that is being deleted."""

    cleanup: bool


Action: TypeAlias = Skip | AddFinalizer | Run


def decide(body: Json, watch: Watch, *, relevant: bool) -> Action:
    """Return exactly one action for the resource as it is now.

    `relevant` is whether the watch's selector and `when` match the resource. A resource
    that is being deleted is cleaned up in any case: its finalizer shows that it was selected
    before.
    """
    metadata = body["metadata"]
    finalizer = watch.finalizer.name if watch.finalizer else None
    has_finalizer = finalizer in (metadata.get("finalizers") or ())
    if metadata.get("deletionTimestamp"):
        # The API server rejects finalizers that are added during deletion.
        return Run(cleanup=True) if has_finalizer else Skip("Resource is terminated")
    if not relevant:
        return Skip("Resource does not match selector or when")
    if finalizer is not None and not has_finalizer:
        return AddFinalizer(finalizer)
    return Run(cleanup=False)
