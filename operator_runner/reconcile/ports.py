"""What a reconcile needs from the world. `app.py` hands it the real parts, tests their fakes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from operator_runner.core.model import (
    EventSpec,
    Json,
    ObjectRef,
    ReservedNames,
    RunContent,
    RunEvent,
    RunOutcome,
    RunRequest,
    Watch,
)


class Cluster(Protocol):
    """The Kubernetes API as a reconcile sees it. Every method raises ApiError."""

    async def get(self, ref: ObjectRef) -> Json | None:
        """Read the object live; None if it does not exist."""

    async def set_finalizers(self, body: Json, finalizers: Sequence[str]) -> Json:
        """Replace the finalizers if `body` is still the current version, else raise Conflict."""

    async def patch_status(self, body: Json, status: Json) -> Json:
        """Merge `status` into the status subresource if `body` is still current, else Conflict.

        Raises Invalid if the status does not fit the schema of its CRD.
        """

    async def emit(self, body: Json, event: EventSpec) -> None:
        """Record a Kubernetes Event about the object; an equal recent one is counted up."""


class Access(Protocol):
    """Gives a run its way to the API."""

    def grant(
        self, owner: Json, watch: Watch, run_id: str, *, of_finalizer: bool
    ) -> AbstractContextManager[str]:
        """Return the text of a kubeconfig that is valid inside the block, for this run alone.

        What the run creates through it is owned by `owner`. `of_finalizer` is a clean-up by a
        role or playbook of its own, whose records are to outlive it.
        """


class Executor(Protocol):
    """Runs a play."""

    async def run(self, request: RunRequest, on_event: Callable[[RunEvent], None]) -> RunOutcome:
        """Run to the end; events are given in order as they happen.

        Never raises for what a play does: a run that fails, cannot start or passes its
        deadline is an outcome with failures. Cancelling ends the whole process tree of the
        run before CancelledError leaves this method.
        """

    async def forget(self, ref: ObjectRef) -> None:
        """Remove everything that was kept for a resource that is gone."""


class VariableNames(Protocol):
    """Names of variables that Ansible or a role uses."""

    async def reserved(self) -> ReservedNames:
        """Return the names that mean something to Ansible. Raises RunError if it gives none."""

    async def declared(self, content: RunContent) -> frozenset[str]:
        """Return the variables that a role or playbook declares, as it is now."""
