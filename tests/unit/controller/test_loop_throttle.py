"""When a resource that keeps triggering itself is slowed down, and when not."""

from __future__ import annotations

from dataclasses import replace

from operator_runner.controller.loop_throttle import LoopThrottle, Throttle
from operator_runner.controller.sources.own_writes import OwnWrites
from operator_runner.core.model import GVK, Cause, ObjectRef, Trigger
from operator_runner.core.resource_states import ResourceStates

KEY = ObjectRef(GVK("example.com", "v1", "Foo"), "default", "a")
FOUGHT = ObjectRef(GVK("", "v1", "ConfigMap"), "default", "fought")
OTHER = ObjectRef(GVK("apps", "v1", "Deployment"), "default", "busy")
ECHO = Cause(Trigger.DEPENDENT, f"{FOUGHT} changed by them (data.text)", FOUGHT)
BUSY = Cause(Trigger.DEPENDENT, f"{OTHER} changed by hpa (spec.replicas)", OTHER)
EDIT = Cause(Trigger.SPEC, "spec.size", state_key="7")
PERIOD, RETRY = Cause(Trigger.PERIOD), Cause(Trigger.RETRY)


class Resource:
    """A resource whose every run takes a second and writes one object, on a clock of its own."""

    def __init__(self, writes: ObjectRef | None = FOUGHT) -> None:
        self.now = 100.0
        self._writes = writes
        self.states = ResourceStates()
        self.own = OwnWrites(self.states)
        self.throttle = LoopThrottle(self.own.is_recent_echo, self.own.has_written, self.states)

    def run(
        self, generation: int | None = None, *, changes: bool = True, annotated: bool = False
    ) -> None:
        """Run now, independent of the throttle."""
        self.own.begin(KEY)
        if self._writes is not None and changes:
            self.own.record(KEY, self._writes)
        if generation is not None:
            self.own.record_edit(KEY, {"generation": generation})
        self.now += 1
        self.throttle.run_ended(KEY, self.now, seconds=1.0, annotated=annotated)

    def wake(self, *causes: Cause, after: float = 0.2) -> Throttle | None:
        """Return the decision for causes some seconds after the run."""
        self.now += after
        return self.throttle.check(KEY, causes, self.now, self.now)

    def fight(self, times: int, *causes: Cause, after: float = 0.2) -> list[float]:
        """Return how long each of this many runs was held back, in seconds."""
        held = []
        for _ in range(times):
            hold = self.wake(*(causes or (ECHO,)), after=after)
            held.append(hold.seconds + after if hold is not None else 0.0)
            self.now += hold.seconds if hold is not None else 0.0
            self.run()
        return held


def test_a_loop_is_throttled_increasingly_and_never_stopped() -> None:
    """Five echoes in a row are borne; then the delay doubles up to five minutes."""
    fighter = Resource()
    fighter.run()
    held = [round(seconds) for seconds in fighter.fight(16)]
    assert held == [0, 0, 0, 0, 0, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]


def test_a_throttled_run_starts_after_its_delay_and_is_reported_once() -> None:
    """Further echoes meanwhile neither prolong the delay nor make a second Event."""
    fighter = Resource()
    fighter.run()
    fighter.fight(7)
    first = fighter.wake(ECHO)
    again = fighter.wake(ECHO, after=1)
    assert first is not None
    assert again is not None
    assert (first.first, again.first) == (True, False)
    assert (first.echoes, first.streak) == ((ECHO,), 8)
    assert round(first.seconds - again.seconds, 3) == 1
    assert fighter.wake(ECHO, after=again.seconds) is None


def test_an_edit_by_a_user_ends_throttling_at_once() -> None:
    """The edit is run without delay, and so are the next echoes."""
    fighter = Resource()
    fighter.run()
    fighter.fight(9)
    assert fighter.wake(ECHO) is not None
    for healing in (
        EDIT,
        Cause(Trigger.DELETION),
        Cause(Trigger.PROJECT),
        Cause(Trigger.ANNOTATION),
    ):
        assert fighter.wake(ECHO, healing) is None
        fighter.run()
        assert fighter.fight(5) == [0] * 5
        assert fighter.wake(ECHO) is not None


def test_a_busy_object_that_the_role_does_not_write_is_not_a_loop() -> None:
    """However often it changes: an autoscaler's work is not ours to slow down."""
    bystander = Resource(writes=FOUGHT)
    bystander.run()
    assert bystander.fight(50, BUSY) == [0] * 50
    reader = Resource(writes=None)
    reader.run()
    assert reader.fight(50, ECHO) == [0] * 50


def test_rollouts_are_not_a_loop() -> None:
    """The status of a written object changes, and the next runs write nothing."""
    steady = Resource()
    reference = Cause(Trigger.REFERENCE, f"{OTHER} changed", OTHER)
    for _ in range(20):
        assert steady.wake(reference) is None
        steady.run()
        for _ in range(3):
            assert steady.wake(ECHO) is None
            steady.run(changes=False)


def test_a_loop_with_runs_that_write_nothing_is_throttled() -> None:
    """The object is written, its status changes, and the other writer reverts it."""
    fighter = Resource()
    fighter.run()
    for _ in range(5):
        assert fighter.wake(ECHO) is None
        fighter.run(changes=False)
        assert fighter.wake(ECHO) is None
        fighter.run()
    assert fighter.wake(ECHO) is not None


def test_slow_changes_are_not_a_loop() -> None:
    """Edits by hand and schedules are slower than an echo."""
    patient = Resource()
    patient.run()
    assert patient.fight(50, after=11) == [0] * 50


def test_the_loss_of_another_object_is_healed_at_once() -> None:
    """During throttling, changes of objects that the run did not write start a run at once."""
    fighter = Resource()
    fighter.run()
    fighter.fight(9)
    assert fighter.wake(ECHO) is not None
    assert fighter.wake(ECHO, BUSY) is None


def test_a_fight_that_is_over_leaves_nothing() -> None:
    """An echo that comes late begins a new row."""
    fighter = Resource()
    fighter.run()
    fighter.fight(9)
    fighter.fight(1, after=60)
    assert fighter.fight(5) == [0] * 5


def test_a_role_that_edits_its_own_spec_is_throttled() -> None:
    """Its edits are identified by their generation; edits of others are not counted."""
    itself = Resource(writes=None)
    itself.run(generation=2)
    for generation in range(2, 7):
        assert itself.wake(Cause(Trigger.SPEC, "spec.size", state_key=str(generation))) is None
        itself.run(generation + 1)
    hold = itself.wake(Cause(Trigger.SPEC, "spec.size", state_key="7"))
    assert hold is not None
    assert itself.wake(Cause(Trigger.SPEC, "spec.size", state_key="8")) is None


def test_a_role_that_writes_references_is_throttled() -> None:
    """A reference that the run writes wakes it as well; others that change are answered at once."""
    fighter = Resource()
    fighter.run()
    named = Cause(Trigger.REFERENCE, f"{FOUGHT} changed", FOUGHT)
    assert fighter.fight(6, named)[-1] > 0
    other = Cause(Trigger.REFERENCE, f"{OTHER} changed", OTHER)
    assert fighter.fight(9, other) == [0] * 9
    assert fighter.wake(named) is not None


def test_timers_do_not_count_as_loops() -> None:
    """Retries and resyncs are neither held back nor counted."""
    fighter = Resource()
    fighter.run()
    assert fighter.fight(20, RETRY) == [0] * 20
    assert fighter.fight(20, PERIOD) == [0] * 20
    assert fighter.fight(5) == [0] * 5


def test_a_run_that_the_role_asked_for_is_not_delayed_by_echoes() -> None:
    """An operand that changes in steps wakes its role between them."""
    stepwise = Resource()
    stepwise.run()
    stepwise.fight(9)
    assert stepwise.wake(ECHO) is not None
    assert stepwise.wake(ECHO, Cause(Trigger.REQUEUE, "1 s"), after=1.0) is None


def test_deleted_resources_are_discarded() -> None:
    """A new resource of the same name is not throttled."""
    fighter = Resource()
    fighter.run()
    fighter.fight(9)
    fighter.states.pop(KEY)
    assert fighter.wake(ECHO) is None


def test_a_period_of_seconds_is_kept() -> None:
    """A role of one second that polls every five seconds takes a sixth of a run."""
    poller = Resource()
    for _ in range(1000):
        poller.run(annotated=True)
        assert poller.wake(PERIOD, after=5) is None


def test_annotations_of_a_namespace_share_its_runs() -> None:
    """What exceeds the share of half a run waits, is reported once, and delays no others."""
    keys = [ObjectRef(KEY.gvk, "greedy", str(number)) for number in range(10)]
    throttle = LoopThrottle(lambda *_: False, lambda _: True, ResourceStates(), 0.5)
    due = dict.fromkeys(keys, 0.0)
    for key in keys:
        throttle.run_ended(key, 0.0, seconds=1.0, annotated=True)
    runs, reports, now = 0, 0, 0.0
    while now < 1000:
        key = min(due, key=lambda each: due[each])
        now = max(now, due[key])
        hold = throttle.check(key, [PERIOD], now, now)
        if hold is None:
            throttle.run_ended(key, now + 1, seconds=1.0, annotated=True)
            runs, due[key] = runs + 1, now + 2  # a period of a second
        else:
            reports, due[key] = reports + hold.first, now + hold.seconds
    throttle.run_ended(KEY, now, seconds=1.0, annotated=True)
    assert throttle.check(KEY, [PERIOD], now + 1, now + 1) is None
    assert 500 <= runs <= 540
    assert reports == len(keys)


def test_a_long_run_uses_the_share_that_it_has_taken() -> None:
    """The first run of a resource has no known duration: it is charged at its end."""
    throttle = LoopThrottle(lambda *_: False, lambda _: True, ResourceStates(), 0.5)
    throttle.run_ended(KEY, 0.0, seconds=0.0, annotated=True)
    assert throttle.check(KEY, [PERIOD], 1.0, 1.0) is None
    throttle.run_ended(KEY, 601.0, seconds=600.0, annotated=True)
    hold = throttle.check(KEY, [PERIOD], 602.0, 602.0)
    assert hold is not None
    assert round(hold.seconds) == 1201 - 602 - 60
    assert throttle.check(KEY, [PERIOD, EDIT], 602.0, 602.0) is None
    throttle.run_ended(KEY, 603.0, seconds=1.0)  # the annotation is removed
    assert throttle.check(KEY, [PERIOD], 604.0, 604.0) is None


def test_a_loop_that_moves_to_another_replica_is_throttled_there() -> None:
    """The first run of the next owner is not delayed; the first echo of it is."""
    former, fighter = Resource(), Resource()
    former.run()
    former.fight(8)
    assert former.throttle.count(KEY) == 8

    fighter.throttle.restore(KEY, 8, fighter.now)
    assert fighter.wake(Cause(Trigger.START)) is None
    fighter.run()
    assert [round(seconds) for seconds in fighter.fight(2)] == [16, 32]


def test_only_throttled_resources_are_counted() -> None:
    """A few echoes are ordinary."""
    fighter = Resource()
    assert fighter.throttle.count(KEY) == 0
    fighter.run()
    fighter.fight(5)
    assert fighter.throttle.count(KEY) == 0
    fighter.throttle.restore(KEY, 9, 0.0)
    assert fighter.throttle.count(KEY) == 0


def test_a_loop_of_many_days_is_still_throttled() -> None:
    """The delay has a maximum, whatever the number of echoes."""
    fighter = Resource()
    fighter.throttle.restore(KEY, 100_000, fighter.now)
    fighter.run()
    assert [round(seconds) for seconds in fighter.fight(1)] == [300]


def test_a_share_that_is_free_again_needs_no_correction() -> None:
    """A long run of one resource ends after the share of its namespace was found to be free."""
    throttle = LoopThrottle(lambda *_: False, lambda _: True, ResourceStates(), 0.5)
    throttle.run_ended(KEY, 100.0, seconds=10.0, annotated=True)
    assert throttle.check(KEY, [PERIOD], 160.0, 160.0) is None
    other = replace(KEY, name="other")
    assert throttle.check(other, [PERIOD], 195.0, 195.0) is None
    for now in (200.0, 300.0):
        throttle.run_ended(KEY, now, seconds=20.0, annotated=True)
        assert throttle.check(KEY, [PERIOD], now + 1, now + 1) is None
