"""Protocols of what a reconcile calls: `app/` passes the implementations, tests pass fakes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Protocol

from operator_runner.core.model import (
    GVK,
    Cause,
    EventSpec,
    FieldChange,
    Json,
    ObjectRef,
    Prune,
    ReservedNames,
    RunContent,
    RunEvent,
    RunOutcome,
    RunRequest,
    Watch,
)
from operator_runner.kube.object_readiness import DependentsReadiness
from operator_runner.reconcile.results import PruneResult


class ClusterClient(Protocol):
    """The Kubernetes API, as far as a reconcile uses it. Every method raises ApiError."""

    async def get(self, ref: ObjectRef) -> Json | None:
        """Get the object from the API server; None if it does not exist."""

    async def patch_metadata(self, body: Json, metadata: Json) -> Json:
        """Merge `metadata` if `body` is still the current version, else raise Conflict.

        Lists, such as the finalizers, are replaced; None removes an annotation.
        """

    async def patch_status(self, body: Json, status: Json) -> Json:
        """Merge `status` into the status subresource if `body` is still current, else Conflict.

        Raises Invalid if the status does not fit the schema of its CRD.
        """

    async def explain_missing(self, gvk: GVK) -> str:
        """Return cause and hint for a kind that is not served; never raises.

        It is empty if the kind is served, or if that is unknown.
        """

    async def emit(self, body: Json, event: EventSpec) -> None:
        """Record a Kubernetes Event about the object; an equal recent one is only counted."""


class Access(Protocol):
    """Gives a run access to the API."""

    def grant(
        self, owner: Json, watch: Watch, run_id: str, *, of_finalizer: bool
    ) -> AbstractContextManager[str]:
        """Return the text of a kubeconfig that is valid inside the block, for this run alone.

        What the run creates with it is owned by `owner`. `of_finalizer` is True for the run of a
        finalizer, whose ConfigMaps outlive the resource.
        """

    async def prune(self, run_id: str, prune: Prune, incomplete: str) -> PruneResult:
        """Delete what a run in progress no longer wants. Raises ApiError.

        Only count that if the run is `incomplete`, which is the reason.
        """


class WriteRecorder(Protocol):
    """Records what the last run of each resource wrote."""

    def is_echo(self, owner: ObjectRef, cause: Cause) -> bool:
        """Return whether a cause is about what the last run of `owner` wrote."""

    def take_changes(self, owner: ObjectRef) -> Sequence[FieldChange]:
        """Return the fields that the last run of `owner` changed, in order, and forget them."""

    def own_version(self, owner: ObjectRef) -> str:
        """Return the resourceVersion of the last write of a run to `owner`, empty if unknown."""


class OwnedObjects(Protocol):
    """The objects of each resource, as last seen."""

    def of(self, owner: ObjectRef) -> Sequence[Json]:
        """Return the objects that a resource owns, for its declared status."""


class ObservedDependents(Protocol):
    """What is known of the objects that resources own."""

    @property
    def writes(self) -> WriteRecorder:
        """The writes of runs."""

    @property
    def objects(self) -> OwnedObjects:
        """The objects themselves, for watches that declare a status."""

    def hold_events(self, owner: ObjectRef, *, is_new: bool) -> AbstractContextManager[None]:
        """Defer the events of the objects of a resource during its run.

        `is_new` is whether the resource has just been created, so that they should be missing.
        """

    def readiness(self, owner: ObjectRef, named: str = "") -> DependentsReadiness:
        """Return whether the objects of a resource are ready, for `kstatus` and `status`.

        `named` is kind and name of an object to report first.
        """

    def catching_up(self, owner: ObjectRef) -> Awaitable[None] | None:
        """Return a wait of a moment for objects whose status is about an older spec; or None."""


class Queue(Protocol):
    """The queue, as far as a reconcile uses it; see `controller.workqueue`."""

    def forget(self, ref: ObjectRef) -> None:
        """Reset the backoff of a resource."""

    def free_slot(self, ref: ObjectRef) -> None:
        """Let others run while `ref` only waits, and is reported then."""

    def without_slot(self, ref: ObjectRef) -> AbstractAsyncContextManager[None]:
        """Let others run inside the block; one resource at a time is inside."""


class Executor(Protocol):
    """Runs plays."""

    async def run(self, request: RunRequest, on_event: Callable[[RunEvent], None]) -> RunOutcome:
        """Run a play to its end; `on_event` gets each event in order, as it happens.

        Never raises for what a play does: a run that fails, cannot start or exceeds its timeout
        is an outcome with failures. Cancelling terminates the whole process tree of the run
        before CancelledError is raised.
        """

    async def end_unadopted(self, ref: ObjectRef, current: str) -> None:
        """End the runs of an earlier operator that outlived it and that `run` has not continued.

        Those of the resource with the uid `current` are kept for its next run; empty keeps none.
        """

    async def forget(self, ref: ObjectRef) -> None:
        """Remove all files of a deleted resource."""


class VariableNames(Protocol):
    """Names of variables that Ansible or a role uses."""

    async def reserved(self) -> ReservedNames:
        """Return the names that Ansible uses itself. Raises RunError if they cannot be listed."""

    async def declared(self, content: RunContent) -> frozenset[str]:
        """Return the variables that a role or playbook declares, read again on each call."""
