"""The workqueue's rules, on a clock that the tests turn."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from operator_runner.controller.workqueue import QueueState, WorkQueue
from operator_runner.core.model import GVK, Cause, ObjectRef, Trigger, describe
from operator_runner.core.settings import BackoffSettings, Concurrency

FOO = GVK("example.com", "v1", "Foo")
BAR = GVK("example.com", "v1", "Bar")
SPEC = Cause(Trigger.SPEC, "created")


def key(name: str, gvk: GVK = FOO) -> ObjectRef:
    return ObjectRef(gvk, "default", name)


def backlog(total: int = 4, per_kind: int = 4) -> QueueState:
    return QueueState(Concurrency(total, per_kind), BackoffSettings())


def names(queue: QueueState, now: float, count: int) -> list[str | None]:
    taken = [queue.get(now) for _ in range(count)]
    return [item.key.name if item else None for item in taken]


def test_several_causes_of_one_key_make_one_run() -> None:
    """Adding a key twice gives one item with both causes."""
    queue = backlog()
    queue.add(key("a"), SPEC, 0)
    queue.add(key("a"), Cause(Trigger.DEPENDENT, "x"), 1)
    item = queue.get(3)
    assert item is not None
    assert item.causes == (SPEC, Cause(Trigger.DEPENDENT, "x"))
    assert item.waited == 3
    assert queue.get(3) is None


def test_a_key_is_never_worked_on_twice_at_once() -> None:
    """Causes during a run lead to one later run after its end."""
    queue = backlog()
    queue.add(key("a"), SPEC, 0)
    assert names(queue, 0, 1) == ["a"]
    queue.add(key("a"), SPEC, 1)
    queue.add(key("a"), SPEC, 2)
    assert queue.get(2) is None
    queue.done(key("a"))
    assert names(queue, 3, 2) == ["a", None]


def test_a_key_without_a_slot_lets_others_run_and_is_still_worked_on_once() -> None:
    """A report takes no place from runs; its end gives none back a second time."""
    queue = QueueState(Concurrency(1, 1), BackoffSettings())
    for name in ("a", "b", "c"):
        queue.add(key(name), SPEC, 0)
    assert names(queue, 0, 2) == ["a", None]
    queue.free_slot(key("a"))
    queue.add(key("a"), SPEC, 1)
    assert names(queue, 1, 2) == ["b", None]
    queue.done(key("a"))
    assert names(queue, 2, 1) == [None]
    queue.done(key("b"))
    assert names(queue, 3, 2) == ["c", None]
    queue.free_slot(key("unknown"))


def test_backoff_doubles_from_5_ms_to_1000_s_and_is_reset() -> None:
    """Each failure doubles the delay up to the limit; a success resets it."""
    queue = backlog()
    delays = [queue.add_rate_limited(key("a"), 0) for _ in range(20)]
    assert delays[:3] == [0.005, 0.01, 0.02]
    assert delays[-1] == 1000
    queue.forget(key("a"))
    assert queue.add_rate_limited(key("a"), 0) == 0.005


def test_a_retry_waits_for_its_time_but_an_edit_does_not() -> None:
    """An event in between is run at once and takes the place of the retry."""
    queue = QueueState(Concurrency(4, 4), BackoffSettings(first=timedelta(seconds=8)))
    queue.add_rate_limited(key("a"), 0)
    assert queue.get(7.9) is None
    assert queue.next_due() == 8
    queue.add(key("a"), SPEC, 5)
    item = queue.get(5)
    assert item is not None
    assert item.causes == (SPEC,)
    queue.done(key("a"))
    assert queue.get(9) is None


def test_an_overtaken_periodic_run_is_not_a_cause() -> None:
    """A delayed cause is reported only by the run that it triggered."""
    queue = backlog()
    queue.add_after(key("a"), Cause(Trigger.PERIOD), 0, 10)
    item = queue.get(10)
    assert item is not None
    assert item.causes == (Cause(Trigger.PERIOD),)
    assert item.waited == 0


def test_an_edit_precedes_retries_resyncs_and_the_runs_at_start() -> None:
    """Keys are given out by the most urgent of their causes, then by age."""
    queue = backlog(total=9, per_kind=9)
    for name, trigger in [
        ("start", Trigger.START),
        ("period", Trigger.PERIOD),
        ("retry", Trigger.RETRY),
        ("dependent", Trigger.DEPENDENT),
        ("spec", Trigger.SPEC),
        ("spec-later", Trigger.SPEC),
    ]:
        queue.add(key(name), Cause(trigger), len(name))
    queue.add(key("start"), Cause(Trigger.START), 100)
    expected = ["spec", "spec-later", "dependent", "retry", "period", "start"]
    assert names(queue, 100, 6) == expected


def test_caps_hold_for_all_and_for_each_kind() -> None:
    """No more keys are given out than the total and the kind's share allow."""
    queue = QueueState(Concurrency(total=3, per_kind=2), BackoffSettings())
    for name in "abc":
        queue.add(key(name), SPEC, 0)
    for name in "xyz":
        queue.add(key(name, BAR), SPEC, 1)
    assert names(queue, 2, 4) == ["a", "x", "b", None]
    queue.done(key("x", BAR))
    assert names(queue, 2, 2) == ["y", None]
    queue.done(key("a"))
    assert names(queue, 2, 2) == ["c", None]


def test_the_next_run_of_a_key_can_take_the_place_of_the_one_that_ended() -> None:
    """What arrived meanwhile is given out though all room is taken, and only once."""
    queue = backlog(total=1)
    queue.add(key("a"), SPEC, 0)
    queue.add(key("b"), SPEC, 0)
    assert names(queue, 0, 2) == ["a", None]
    assert queue.get_again(key("a"), 1) is None
    queue.add(key("a"), SPEC, 1)
    again = queue.get_again(key("a"), 3)
    assert again is not None
    assert (again.causes, again.waited) == ((SPEC,), 2)
    assert queue.get(3) is None
    queue.done(key("a"))
    assert names(queue, 4, 2) == ["b", None]


def test_runs_wait_for_memory_except_the_first() -> None:
    """The only run always starts; beside others it starts only with enough memory."""
    queue = backlog()
    for name in "ab":
        queue.add(key(name), SPEC, 0)
    assert queue.get(0, lambda: True) is not None
    assert queue.get(0, lambda: True) is None
    assert queue.get(0, lambda: False) is not None


def test_a_dropped_key_leaves_nothing_behind() -> None:
    """A deleted resource is neither retried nor returned again."""
    queue = backlog()
    queue.add(key("a"), SPEC, 0)
    queue.get(0)
    queue.add_rate_limited(key("a"), 0)
    queue.remove(key("a"))
    queue.done(key("a"))
    assert queue.get(2000) is None
    assert queue.next_due() is None
    assert queue.add_rate_limited(key("a"), 0) == 0.005


def test_a_resource_recreated_during_its_last_run_is_enqueued() -> None:
    """The creation that arrives during the run is given out after it."""
    queue = backlog()
    queue.add(key("a"), Cause(Trigger.DELETION), 0)
    queue.get(0)
    queue.add(key("a"), SPEC, 1)
    queue.remove(key("a"))
    queue.done(key("a"))
    assert names(queue, 2, 2) == ["a", None]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["add", "take", "done"]))))
def test_nothing_added_is_ever_lost(steps: list[tuple[str, str]]) -> None:
    """For any order of events, each added key is returned after its last addition."""
    queue = backlog()
    enqueued: set[str] = set()
    busy: set[str] = set()
    for now, (name, step) in enumerate(steps):
        if step == "add":
            queue.add(key(name), SPEC, now)
            enqueued.add(name)
        elif step == "take" and (item := queue.get(now)) is not None:
            assert item.key.name not in busy
            enqueued.discard(item.key.name)
            busy.add(item.key.name)
        elif step == "done" and name in busy:
            busy.discard(name)
            queue.done(key(name))
    for name in busy:
        queue.done(key(name))
    assert {item.key.name for item in iter(lambda: queue.get(1000), None)} == enqueued


async def test_memory_is_checked_before_a_run_starts_beside_others() -> None:
    """The end of a run permits the next one, even if memory is still low."""
    queue = WorkQueue(Concurrency(4, 4, run_memory=100), BackoffSettings(), lambda: 99)
    queue.add(key("a"), SPEC)
    queue.add(key("b"), SPEC)
    first = await queue.get()
    second = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    assert not second.done()
    queue.done(key("a"))
    assert first is not None
    assert (item := await second) is not None
    assert (first.key.name, item.key.name) == ("a", "b")


async def test_listeners_get_every_event() -> None:
    """A closed queue calls no listener, and a run that ended is not followed by another."""
    queue = WorkQueue(Concurrency(4, 4), BackoffSettings())
    heard: list[tuple[ObjectRef, Cause]] = []
    queue.add_listener(lambda key, cause: heard.append((key, cause)))
    queue.add(key("a"), SPEC)
    await queue.get()
    queue.add(key("a"), SPEC)
    queue.close()
    queue.add(key("a"), SPEC)
    assert heard == [(key("a"), SPEC)] * 2
    assert queue.get_again(key("a")) is None


async def test_taking_waits_for_the_next_key_and_ends_when_closed() -> None:
    """The queue wakes its taker for a new key, a delayed key, and its own end."""
    queue = WorkQueue(Concurrency(4, 4), BackoffSettings())
    queue.add_after(key("later"), Cause(Trigger.PERIOD), 0.02)
    queue.add(key("now"), SPEC)
    first, second = await queue.get(), await queue.get()
    assert first is not None
    assert second is not None
    assert (first.key.name, second.key.name) == ("now", "later")
    queue.close()
    assert await queue.get() is None


def test_causes_are_formatted_for_display() -> None:
    """Causes are joined in order of arrival."""
    assert describe([SPEC, Cause(Trigger.START), SPEC]) == "spec: created; start"


def test_a_delayed_key_is_returned_later_with_its_causes() -> None:
    """Deferring keeps all causes, and a new cause makes the key ready at once."""
    queue = backlog()
    echo = Cause(Trigger.DEPENDENT, "x")
    for now, cause in ((0, echo), (1, SPEC)):
        queue.add(key("a"), cause, now)
        item = queue.get(now)
        assert item is not None
        assert item.causes[-1] == cause
        queue.defer(item, now, 10 - now)
        queue.done(key("a"))
        assert queue.get(now) is None
    assert queue.next_due() == 10
    item = queue.get(10)
    assert item is not None
    assert item.causes == (echo, SPEC)
    queue.done(key("a"))
    assert queue.next_due() is None


def test_a_deferred_run_keeps_an_earlier_request() -> None:
    """A role asked to run again, events of the run arrived first, and were deferred for longer."""
    queue = backlog()
    echo, request = Cause(Trigger.DEPENDENT, "x"), Cause(Trigger.REQUEUE, "1 s")
    queue.add(key("a"), SPEC, 0)
    assert queue.get(0) is not None
    queue.add(key("a"), echo, 1)
    queue.add_after(key("a"), request, 2, 1)
    queue.done(key("a"))
    item = queue.get(2)
    assert item is not None
    assert item.causes == (echo,)
    queue.defer(item, 2, 300)
    queue.done(key("a"))
    item = queue.get(3)
    assert item is not None
    assert item.causes == (echo, request)
    queue.done(key("a"))
    assert queue.next_due() is None


def test_no_trigger_is_lost_among_many_causes() -> None:
    """However many objects changed, an edit of the spec is listed too."""
    queue = backlog()
    for number in range(50):
        queue.add(key("a"), Cause(Trigger.DEPENDENT, str(number)), 0)
    queue.add(key("a"), SPEC, 0)
    item = queue.get(0)
    assert item is not None
    assert len(item.causes) == 17
    assert item.causes[-1] == SPEC


def test_a_backoff_may_begin_later() -> None:
    """A failure that a retry cannot fix has a longer first delay, and the same limit."""
    queue = backlog()
    delays = [queue.add_rate_limited(key("a"), 0, 1.0) for _ in range(20)]
    assert delays[:3] == [1, 2, 4]
    assert delays[-1] == 1000
