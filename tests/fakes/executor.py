"""An executor that runs nothing: the test sets the outcome of each run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from operator_runner.core.model import (
    Json,
    ObjectRef,
    Prune,
    ReservedNames,
    RunContent,
    RunEvent,
    RunOutcome,
    RunRequest,
    Stats,
    TaskFailure,
    Watch,
)
from operator_runner.reconcile.results import PruneResult


def success(changed: int = 0) -> RunOutcome:
    return RunOutcome(Stats(ok=3, changed=changed), finished=datetime.now(UTC))


def failure(task: str, message: str) -> RunOutcome:
    failures = (TaskFailure(task, message),)
    return RunOutcome(Stats(failures=1), failures, finished=datetime.now(UTC))


class FakeExecutor:
    """Returns the outcomes in order, then the last one again; records the requests."""

    def __init__(self, *outcomes: RunOutcome) -> None:
        self._outcomes = list(outcomes) or [success()]
        self.requests: list[RunRequest] = []
        self.forgotten: list[ObjectRef] = []
        self.unadopted: list[tuple[ObjectRef, str]] = []
        self.events = [RunEvent("playbook_on_task_start", {"task": "a"})]
        self.during: Callable[[], None] = lambda: None

    async def run(self, request: RunRequest, on_event: Callable[[RunEvent], None]) -> RunOutcome:
        """See the port."""
        self.requests.append(request)
        for event in self.events:
            on_event(event)
        self.during()
        return self._outcomes.pop(0) if len(self._outcomes) > 1 else self._outcomes[0]

    async def end_unadopted(self, ref: ObjectRef, current: str) -> None:
        """See the port."""
        self.unadopted.append((ref, current))

    async def forget(self, ref: ObjectRef) -> None:
        """See the port."""
        self.forgotten.append(ref)


class FakeAccess:
    """Grants access and records whether it is open."""

    def __init__(self) -> None:
        self.open = 0
        self.of_finalizer: list[bool] = []
        """Whether each run was that of a finalizer."""
        self.undeletable: list[str] = []
        """Why objects cannot be pruned."""

    async def prune(self, run_id: str, prune: Prune, incomplete: str) -> PruneResult:  # noqa: ARG002
        """See the port."""
        return PruneResult(refused=[*self.undeletable])

    @contextmanager
    def grant(self, owner: Json, watch: Watch, run_id: str, *, of_finalizer: bool) -> Iterator[str]:
        """See the port."""
        self.open += 1
        self.of_finalizer.append(of_finalizer)
        try:
            yield f"kubeconfig of {owner['metadata']['name']} {watch.gvk.kind} {run_id}"
        finally:
            self.open -= 1


class FakeVariableNames:
    """Some of the names that Ansible reserves, and those that a role declares."""

    def __init__(self) -> None:
        self.names = ReservedNames(frozenset({"vars", "sops_binary"}), frozenset({"hosts", "port"}))
        self.error: Exception | None = None
        self.declares = frozenset[str]()

    async def reserved(self) -> ReservedNames:
        """See the port."""
        if self.error is not None:
            raise self.error
        return self.names

    async def declared(self, _: RunContent) -> frozenset[str]:
        """See the port."""
        return self.declares
