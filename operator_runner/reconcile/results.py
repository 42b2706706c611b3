"""Results of a reconcile, and of what it deletes."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeAlias

from operator_runner.core.model import ObjectRef, Trigger


@dataclass(frozen=True, slots=True)
class Gone:
    """The resource is deleted, and its files are removed."""


@dataclass(frozen=True, slots=True)
class NoRun:
    """Nothing was to be done, or the clean-up is done; reconcile again on the next event.

    `reason` is why nothing was run, empty after a clean-up. `failed` is whether that is an error of
    the resource, which only an edit can correct.
    """

    reason: str = field(default="", compare=False)
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The play succeeded. `after` is the time until the next reconcile, None for none."""

    after: timedelta | None
    trigger: Trigger
    by_resource: bool = field(default=False, compare=False)
    """Whether an annotation of the resource shortens the period."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The play failed or could not be run; reconcile again after a backoff."""

    timed_out: bool = False
    load_failed: bool = False
    """Whether Ansible could not load the play; see `RunOutcome`."""
    message: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Superseded:
    """The play was ended because the resource changed; reconcile again at once."""


@dataclass(frozen=True, slots=True)
class Aborted:
    """The process may have lost its Lease, so that nothing was reported; reconcile again."""


ReconcileResult: TypeAlias = Gone | NoRun | Succeeded | Failed | Superseded | Aborted


@dataclass(slots=True)
class PruneResult:
    """The objects that were deleted, and why others were not: object and error, or kind and error.

    `skipped` are those that a run which was not complete, or whose resource was edited meanwhile,
    did not write. `version` is the new resourceVersion of the resource, empty if none was written.
    """

    deleted: list[ObjectRef] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    skipped: int = 0
    version: str = ""
