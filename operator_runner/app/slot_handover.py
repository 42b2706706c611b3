"""What happens to resources when slots of shards come to this replica, and when they leave it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from operator_runner.app.event_sources import EventSources
from operator_runner.app.execution import Execution
from operator_runner.app.leadership import ShardGate
from operator_runner.controller.loop_throttle import LoopThrottle
from operator_runner.controller.predicates.primary_events import SeenResource, SeenResources
from operator_runner.controller.sharding import BackoffHandover, SlotEvents
from operator_runner.controller.workqueue import WorkQueue
from operator_runner.core.model import Cause, ObjectRef, Trigger
from operator_runner.core.resource_states import ResourceStates
from operator_runner.core.slot_assignment import BackoffState, slot_of
from operator_runner.telemetry.metrics import Metrics


class SlotHandover:
    """Enqueues the resources of slots that are gained, and ends what is known of released ones."""

    def __init__(
        self,
        gate: ShardGate,
        queue: WorkQueue,
        throttle: LoopThrottle,
        *,
        seen: SeenResources,
        states: ResourceStates,
        sources: EventSources,
        execution: Execution,
        metrics: Metrics,
    ) -> None:
        """Hand over what these parts know."""
        self._gate, self._queue = gate, queue
        self._backoff = BackoffHandover(queue, throttle)
        self._seen, self._states = seen, states
        self._sources, self._execution, self._metrics = sources, execution, metrics

    def events(self, lease: str) -> SlotEvents:
        """Return the callbacks of `Sharding`; `lease` is the name of the coordinator's Lease."""
        return SlotEvents(
            self._gained,
            self._released,
            self._metrics.shards.count,
            lambda leads: self._metrics.leading(lease, leads),
        )

    def claim(self, ref: ObjectRef) -> bool:
        """Return whether the current task may reconcile a resource, see `ShardGate.claim`."""
        uid, state = self._seen.uid(ref), self._states.get(ref)
        if self._gate.claim(ref):
            self._backoff.restore(ref, uid)
            return True
        if state is not None and state.uid != uid:
            # A new resource of the name is in a slot of another replica.
            self._states.pop(ref)
        return False

    def _gained(self, slots: frozenset[int], states: Mapping[str, BackoffState]) -> None:
        self._backoff.gained(states)
        self._sources.failed_expressions.gained(slots)
        for ref, seen in self._of(slots):
            self._metrics.resource_seen(ref, seen.created)
        self._metrics.shards.gained(len(slots))
        if not self._execution.gained(slots):
            self.enqueue((), slots)

    def enqueue(self, first: Sequence[ObjectRef], slots: frozenset[int]) -> None:
        """Enqueue the resources of slots, `first` those with running Jobs."""
        self._execution.enqueue_adoptable(first)
        for ref, seen in self._of(slots):
            if seen.may_run:
                self._queue.add(ref, Cause(Trigger.START, "slot gained"))

    def _released(self, slots: frozenset[int]) -> Mapping[str, BackoffState]:
        """End the states of the resources; another replica reconciles them from now on."""
        self._metrics.shards.released(len(slots))
        self._execution.released(slots)
        found = list(self._of(slots))
        runs = [(ref, seen.uid) for ref, seen in found if seen.may_run]
        states = self._backoff.released(slots, runs)
        for ref, _ in found:
            self._queue.remove(ref)
            self._states.pop(ref)
            self._metrics.resource_gone(ref)
        return states

    def _of(self, slots: frozenset[int]) -> Iterator[tuple[ObjectRef, SeenResource]]:
        return ((ref, seen) for ref, seen in self._seen.items() if slot_of(seen.uid) in slots)
