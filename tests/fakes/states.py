"""Sources of events with states of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from operator_runner.controller.sources.debouncing import Debouncer
from operator_runner.controller.sources.dependents import Dependents
from operator_runner.core.model import GVK, Cause, ObjectRef, Watch
from operator_runner.core.resource_states import ResourceState, ResourceStates
from operator_runner.kube.watch import MetadataEvent
from operator_runner.telemetry.runs.records import RunStore

Stream = Callable[[GVK, str | None], AsyncIterator[MetadataEvent]]
Enqueue = Callable[[ObjectRef, Cause], None]


class KnownStates(ResourceStates):
    """Every resource has a state, as if it had been reconciled."""

    def get(self, ref: ObjectRef) -> ResourceState:
        """See `ResourceStates`."""
        return self.of(ref)


class WatchedDependents(Dependents):
    """Dependents with the states of their owners."""

    def __init__(
        self,
        stream: Stream,
        enqueue: Enqueue,
        namespaces: Sequence[str] = (),
        watches: Sequence[Watch] = (),
        *,
        wait: float = 0.0,
        **options: Any,
    ) -> None:
        """`wait` is that of the Debouncer."""
        self.states = ResourceStates()
        debouncer = Debouncer(self.states, enqueue, wait)
        options |= {"states": self.states, "debouncer": debouncer, "records": RunStore()}
        super().__init__(stream, enqueue, namespaces, watches, **options)
