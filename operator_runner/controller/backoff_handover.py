"""Backoff and throttling of resources whose slot moves to another replica."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping

from operator_runner.controller.loop_throttle import LoopThrottle
from operator_runner.controller.workqueue import WorkQueue
from operator_runner.core.backoff_annotation import BackoffState
from operator_runner.core.model import ObjectRef
from operator_runner.core.slot_assignment import slot_of


class BackoffHandover:
    """Reads what delays the runs of resources, and restores what another replica has read.

    A resource is enqueued at once by its new owner; if that run fails or continues a loop, the
    delay is the next one of the former owner.
    """

    def __init__(self, queue: WorkQueue, throttle: LoopThrottle) -> None:
        """Start with nothing to restore."""
        self._queue = queue
        self._throttle = throttle
        self._to_restore: dict[str, BackoffState] = {}
        """States by uid; the resources may not be known yet."""

    def gained(self, states: Mapping[str, BackoffState]) -> None:
        """Restore these states, by uid, when their resources are reconciled first."""
        self._to_restore.update(states)

    def restore(self, ref: ObjectRef, uid: str) -> None:
        """Continue with the state of a resource that is about to be reconciled, if there is one."""
        state = self._to_restore.pop(uid, None)
        if state is not None:
            self._queue.restore_failures(ref, state.failures)
            now = asyncio.get_running_loop().time()
            self._throttle.restore(ref, state.streak, now)

    def released(
        self, slots: Collection[int], resources: Iterable[tuple[ObjectRef, str]]
    ) -> dict[str, BackoffState]:
        """Return the states of resources of slots that are released, by uid."""
        states = {}
        for ref, uid in resources:
            current = BackoffState(self._queue.num_requeues(ref), self._throttle.count(ref))
            state = self._to_restore.get(uid, current)
            if state != BackoffState():
                states[uid] = state
        for uid in [uid for uid in self._to_restore if slot_of(uid) in slots]:
            del self._to_restore[uid]
        return states
