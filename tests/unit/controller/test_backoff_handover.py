"""A resource that moves to another replica goes on with its delays."""

from __future__ import annotations

from operator_runner.controller.loop_throttle import LoopThrottle
from operator_runner.controller.sharding import BackoffHandover
from operator_runner.controller.workqueue import WorkQueue
from operator_runner.core.model import GVK, Cause, ObjectRef, Trigger
from operator_runner.core.resource_states import ResourceStates
from operator_runner.core.settings import BackoffSettings, Concurrency
from operator_runner.core.slot_assignment import BackoffState, slot_of

REF = ObjectRef(GVK("example.com", "v1", "Foo"), "default", "a")
UID = "9fd5d1bd-0d0e-4a3e-a6f3-0a8d6f1f1c11"
START, PERIOD = Cause(Trigger.START), Cause(Trigger.PERIOD)


class Replica:
    """The queue and the throttle of one replica."""

    def __init__(self) -> None:
        self.queue = WorkQueue(Concurrency(4, 4), BackoffSettings())
        self.throttle = LoopThrottle(lambda *_: False, lambda _: True, ResourceStates())
        self.handover = BackoffHandover(self.queue, self.throttle)

    async def begin(self) -> None:
        """Take the resource from the queue."""
        self.queue.add(REF, START)
        item = await self.queue.get()
        assert item is not None
        self.handover.restore(REF, UID)

    async def fail(self) -> float:
        """Run the resource; return the delay of the retry."""
        await self.begin()
        delay = self.queue.add_rate_limited(REF)
        self.queue.done(REF)
        return delay

    def release(self) -> dict[str, BackoffState]:
        """Release the slot of the resource."""
        return self.handover.released({slot_of(UID)}, [(REF, UID)])


async def test_retries_continue_with_the_next_delay() -> None:
    """The run of the new owner counts as the next attempt."""
    old, new = Replica(), Replica()
    delays = [await old.fail() for _ in range(5)]
    new.handover.gained(old.release())

    assert await new.fail() == 2 * delays[-1]
    assert new.release() == {UID: BackoffState(failures=6)}


async def test_a_state_is_restored_once() -> None:
    """A success of the new owner resets the backoff."""
    new = Replica()
    new.handover.gained({UID: BackoffState(failures=5)})
    await new.begin()
    new.queue.forget(REF)
    new.queue.done(REF)

    assert await new.fail() == 0.005


async def test_a_resource_that_moves_again_before_its_run_keeps_its_state() -> None:
    """It may not be known yet; the state is then dropped with the slot."""
    new = Replica()
    new.handover.gained({UID: BackoffState(failures=5)})
    assert new.release() == {UID: BackoffState(failures=5)}
    assert new.release() == {}

    new.handover.gained({UID: BackoffState(failures=5)})
    assert new.handover.released({slot_of(UID)}, []) == {}
    assert await new.fail() == 0.005


async def test_a_resource_without_delays_has_no_state() -> None:
    """Most resources of a slot."""
    assert Replica().release() == {}
