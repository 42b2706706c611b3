"""One state for each resource, with a slot for each part that keeps something."""

from __future__ import annotations

from dataclasses import dataclass, field

from operator_runner.core.model import GVK, ObjectRef
from operator_runner.core.resource_states import ResourceStates

REF, OTHER = (ObjectRef(GVK("example.com", "v1", "Foo"), "default", name) for name in "ab")


@dataclass
class Counter:
    count: int = 0


@dataclass
class Timer:
    owner: ObjectRef
    ended: list[ObjectRef] = field(default_factory=list)

    def close(self) -> None:
        self.ended.append(self.owner)


def test_a_slot_is_made_once_for_each_resource() -> None:
    """With its arguments; looking for it makes neither the slot nor the state."""
    states = ResourceStates()
    assert states.find(REF, Counter) is None
    assert states.get(REF) is None
    assert not list(states)
    states.of(REF).slot(Counter).count += 1
    states.of(REF).slot(Counter).count += 1
    assert states.find(REF, Counter) == Counter(2)
    assert states.find(OTHER, Counter) is None
    assert states.of(OTHER).slot(Timer, OTHER).owner == OTHER
    assert list(states.slots(Counter)) == [(REF, Counter(2))]
    states.of(REF).drop(Counter)
    assert states.find(REF, Counter) is None


def test_a_state_ends_with_all_its_slots() -> None:
    """Slots that hold more than values are closed; a new resource of the name has none of them."""
    states, ended = ResourceStates(), list[ObjectRef]()
    for ref in (REF, OTHER):
        states.of(ref).slot(Timer, ref, ended)
        states.of(ref).uid = "old"
    states.of(REF).slot(Counter)
    states.pop(REF)
    states.pop(REF)
    assert ended == [REF]
    assert states.of(REF).uid == ""
    assert states.find(REF, Timer) is None
    assert states.of(OTHER).uid == "old"


def test_states_may_end_while_they_are_listed() -> None:
    """A resource that is deleted during an iteration breaks nothing."""
    states = ResourceStates()
    for ref in (REF, OTHER):
        states.of(ref)
    for state in states:
        states.pop(state.ref)
    assert not list(states)
