"""Connect the proxy with event handling: a run holds back the events of its own writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from operator_runner.controller.sources.dependents import Dependents
from operator_runner.core.model import FieldChange, Json, ObjectRef, Watch
from operator_runner.proxy.server import Proxy
from operator_runner.telemetry.runs.store import RunStore


class RunAccess:
    """Access through the proxy, with events of owned objects held back during the run."""

    def __init__(self, proxy: Proxy, dependents: Dependents) -> None:
        """Combine proxy and sources."""
        self._proxy = proxy
        self._dependents = dependents

    @contextmanager
    def grant(self, owner: Json, watch: Watch, run_id: str, *, of_finalizer: bool) -> Iterator[str]:
        """See `reconcile.protocols.Access`."""
        with (
            self._dependents.hold_events(ObjectRef.of(owner)),
            self._proxy.grant(owner, watch, run_id, of_finalizer=of_finalizer) as kubeconfig,
        ):
            yield kubeconfig


class WriteObserver:
    """Passes what runs own and write to the dependents; writes and changes to the records too."""

    def __init__(self, dependents: Dependents, runs: RunStore) -> None:
        """Combine both."""
        self.on_dependent = dependents.on_dependent
        self.on_own_write = dependents.on_own_write
        self._dependents = dependents
        self._runs = runs

    def on_write(
        self, owner: ObjectRef, dependent: ObjectRef, resource_version: str, verb: str
    ) -> None:
        """See `proxy.response_tracker.Observer`."""
        self._dependents.on_write(owner, dependent, resource_version, verb)
        self._runs.on_write(owner, dependent, verb)

    def changed(self, owner: ObjectRef, changes: Sequence[FieldChange]) -> None:
        """See `proxy.response_tracker.Observer`."""
        self._dependents.changed(owner, changes)
        self._runs.on_changes(owner, changes)
