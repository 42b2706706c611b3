"""Scheduling: guarantees that hold for any order of events."""

from __future__ import annotations

import itertools
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from operator_runner.controller.workqueue import FairScheduler
from operator_runner.core.model import GVK, Cause, ObjectRef, Trigger
from operator_runner.core.settings import Concurrency

FOO, BAR, BAZ = (GVK("example.com", "v1", kind) for kind in ("Foo", "Bar", "Baz"))
KINDS = st.sampled_from((FOO, BAR, BAZ))

# From the most to the least urgent, as the project promises it.
ORDER = [
    {Trigger.SPEC, Trigger.ANNOTATION, Trigger.DELETION},
    {
        *(Trigger.DEPENDENT, Trigger.REFERENCE, Trigger.TRIGGER, Trigger.PROJECT),
        *(Trigger.REQUEUE, Trigger.SCHEDULE),
    },
    {Trigger.RETRY},
    {Trigger.PERIOD},
    {Trigger.START},
]


class Queue:
    """FairScheduler whose keys are named by numbers; every key is new."""

    def __init__(self, total: int, per_kind: int = 99, extra: int = 0) -> None:
        self.scheduler = FairScheduler(Concurrency(total, per_kind, extra=extra))
        self.names = itertools.count()

    def add(self, trigger: Trigger, gvk: GVK = FOO, namespace: str = "default") -> ObjectRef:
        key = ObjectRef(gvk, namespace, str(next(self.names)))
        self.scheduler.add(key, [Cause(trigger)])
        return key

    def start(self) -> ObjectRef | None:
        key = self.scheduler.next()
        if key is not None:
            self.scheduler.start(key)
        return key

    def run(self) -> ObjectRef | None:
        """Start the next key's run, and end it."""
        key = self.start()
        if key is not None:
            self.scheduler.finish(key)
        return key


def urgency(trigger: Trigger) -> int:
    return next(place for place, triggers in enumerate(ORDER) if trigger in triggers)


@given(st.lists(st.sampled_from(Trigger), max_size=9))
def test_keys_run_by_urgency_then_in_the_order_in_which_they_came(triggers: list[Trigger]) -> None:
    """An edit before a dependent before a retry before a resync before the runs at start."""
    queue = Queue(total=1)
    keys = {queue.add(trigger): urgency(trigger) for trigger in triggers}
    expected = sorted(keys, key=lambda key: (keys[key], int(key.name)))
    assert list(iter(queue.run, None)) == expected


@given(st.integers(1, 400), st.integers(1, 8))
def test_an_edit_precedes_all_queued_runs(waiting: int, total: int) -> None:
    """However many resources wait since the start, the next run is that of the edited one."""
    queue = Queue(total)
    for _ in range(waiting):
        queue.add(Trigger.START)
    running = [queue.start() for _ in range(total)]
    edited = queue.add(Trigger.SPEC)
    if running[0] is not None and running[-1] is not None:
        assert queue.start() is None
        queue.scheduler.finish(running[0])
    assert queue.start() == edited


@given(st.lists(KINDS, min_size=1, max_size=5), st.lists(st.sampled_from(Trigger), max_size=60))
def test_no_key_starves(kinds: list[GVK], stream: list[Trigger]) -> None:
    """Under an endless stream of edits, runs at start of any kinds still get every ninth turn."""
    queue = Queue(total=1)
    waiting = {queue.add(Trigger.START, gvk) for gvk in kinds}
    for trigger in stream:
        queue.add(trigger, BAZ)
    for _ in range(9 * (len(waiting) + len(stream))):
        queue.add(Trigger.SPEC, FOO)
        waiting.discard(queue.run() or queue.add(Trigger.START))
    assert not waiting


def test_a_stream_of_edits_is_held_up_by_every_ninth_run_only() -> None:
    """Eight edits, then one run at start."""
    queue = Queue(total=1)
    starts = {queue.add(Trigger.START) for _ in range(3)}
    ran = []
    for _ in range(27):
        queue.add(Trigger.SPEC)
        ran.append(queue.run() in starts)
    assert ran == ([False] * 8 + [True]) * 3


def test_a_later_key_waits_for_more_urgent_ones() -> None:
    """A resync does not break into a row of edits that were there before it."""
    queue = Queue(total=1)
    edits = [queue.add(Trigger.SPEC) for _ in range(30)]
    late = queue.add(Trigger.PERIOD)
    assert [queue.run() for _ in range(31)] == [*edits, late]


@given(st.lists(KINDS, max_size=40), st.integers(1, 6), st.integers(1, 4), st.integers(0, 3))
def test_the_limits_of_total_and_kind_hold(
    kinds: list[GVK], total: int, per_kind: int, extra: int
) -> None:
    """Nothing exceeds total and kind's share; beyond the total a kind has one run at most."""
    queue = Queue(total, per_kind, extra)
    for gvk in kinds:
        queue.add(Trigger.SPEC, gvk)
    started = [key.gvk for key in iter(queue.start, None)]
    assert len(started) <= total + extra
    assert all(count <= per_kind for count in Counter(started).values())
    assert Counter(started[total:]) == Counter(set(started[total:]))
    assert not set(started[:total]) & set(started[total:])
    requested = sum(min(count, per_kind) for count in Counter(kinds).values())
    assert len(started) >= min(total, requested)


@given(st.permutations([FOO] * 20 + [BAR] * 20 + [BAZ] * 20))
def test_kinds_share_the_workers_evenly(kinds: list[GVK]) -> None:
    """Among equally urgent keys no kind is ever more than one run ahead of another."""
    queue = Queue(total=1)
    for gvk in kinds:
        queue.add(Trigger.START, gvk)
    ran: Counter[GVK] = Counter()
    while (key := queue.run()) is not None:
        ran[key.gvk] += 1
        assert max(ran.values()) - min(ran[gvk] for gvk in (FOO, BAR, BAZ)) <= 1


@given(st.permutations(["crowd"] * 30 + ["one"] * 3 + ["two"] * 3))
def test_namespaces_of_a_kind_share_the_workers_evenly(namespaces: list[str]) -> None:
    """However many resources a namespace has, the others get every second or third run."""
    queue = Queue(total=1)
    for namespace in namespaces:
        queue.add(Trigger.SPEC, namespace=namespace)
    ran = [key.namespace for key in iter(queue.run, None)]
    assert Counter(ran) == Counter(namespaces)
    assert {*ran[:3]} == {"crowd", "one", "two"}
    assert Counter(ran[:9]) == {"crowd": 3, "one": 3, "two": 3}


def test_a_busy_namespace_delays_others_by_one_run() -> None:
    """An edit elsewhere runs next, although the edits of the crowd are earlier and continue."""
    queue = Queue(total=1)
    for _ in range(100):
        queue.add(Trigger.SPEC, namespace="crowd")
    queue.run()
    edited = queue.add(Trigger.SPEC, namespace="quiet")
    queue.add(Trigger.SPEC, namespace="crowd")
    assert edited in {queue.run(), queue.run()}


def test_a_kind_with_slow_runs_does_not_block_others() -> None:
    """A kind that holds all places gives up none, but others have places of their own."""
    queue = Queue(total=2, extra=1)
    slow = [queue.add(Trigger.SPEC, FOO) for _ in range(4)]
    assert [queue.start(), queue.start(), queue.start()] == [slow[0], slow[1], None]
    quick = [queue.add(Trigger.START, BAR) for _ in range(3)]
    assert [queue.run() for _ in quick] == quick
    queue.scheduler.finish(slow[0])
    assert queue.start() == slow[2]


def test_a_key_that_becomes_more_urgent_moves_up() -> None:
    """An edit of a resource that waits since the start counts, and is one run."""
    queue = Queue(total=1)
    first, second = queue.add(Trigger.START), queue.add(Trigger.START)
    queue.scheduler.add(second, [Cause(Trigger.SPEC)])
    queue.scheduler.add(second, [Cause(Trigger.PERIOD)])
    assert queue.scheduler.depth(FOO) == 2
    assert [queue.run(), queue.run(), queue.run()] == [second, first, None]
    assert queue.scheduler.depth(FOO) == 0
