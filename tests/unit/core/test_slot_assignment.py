"""Slots have one owner at a time, in any order of joins, failures, reports and assignments."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operator_runner.core import slot_assignment
from operator_runner.core.slot_assignment import (
    SLOTS,
    Assignment,
    MemberReport,
    MemberSlots,
    SlotChange,
    SlotMove,
    assign,
    decode_assignment,
    decode_report,
    encode_assignment,
    encode_report,
    revise,
    slot_of,
)

MEMBERS = st.lists(st.sampled_from([f"web-{number}" for number in range(9)]), unique=True)
IDLE = MemberReport("uid")


def joined(*members: str) -> dict[str, MemberReport]:
    """Return the reports of members that have observed the object and hold nothing."""
    return dict.fromkeys(members, IDLE)


def assigned(*members: str) -> Assignment:
    return revise(Assignment("uid"), joined(*members), ())


def holding(assignment: Assignment, *members: str) -> dict[str, MemberReport]:
    """Return the reports of members that follow an assignment."""
    return {
        member: MemberReport("uid", assignment.epoch, assignment.slots_of(member))
        for member in members
    }


@given(MEMBERS, MEMBERS)
def test_slots_are_balanced_and_few_of_them_move(before: list[str], after: list[str]) -> None:
    """Only slots that a new member gets, or a former one had, are moved."""
    old = assign({}, before)
    new = assign(old, after)

    assert set(new) == (set(range(SLOTS)) if after else set())
    counts = Counter(new.values())
    if after:
        assert max(counts.values()) - min(counts[member] for member in after) <= 1
        stay = len({*before} & {*after})
        moved = sum(new[slot] != old.get(slot) for slot in new)
        quota = -(-SLOTS // len(after))
        kept = min(Counter(old.values()).values(), default=0)
        assert moved <= SLOTS - stay * min(quota - 1, kept)
    assert assign(new, after) == new


def test_the_order_of_members_does_not_matter() -> None:
    """Any coordinator decides the same."""
    assert assign({}, ["a", "b", "c"]) == assign({}, ["c", "a", "b"])


def test_resources_are_spread_over_the_slots() -> None:
    """The hash of the uid is evenly distributed, also for similar uids."""
    counts = Counter(slot_of(f"uid-{number}") for number in range(SLOTS * 100))

    assert len(counts) == SLOTS
    assert max(counts.values()) < 2 * min(counts.values())


def test_a_slot_moves_after_its_owner_has_released_it() -> None:
    """Announced in one epoch, carried out in a later one."""
    first = assigned("a")
    announced = revise(first, holding(first, "a") | joined("b"), ())
    assert set(announced.owners.values()) == {"a"}
    assert {move.to for move in announced.moves.values()} == {"b"}
    # Slots in an earlier report of a are not a release.
    assert revise(announced, holding(first, "a") | joined("b"), ()) == announced

    moved = revise(announced, holding(announced, "a", "b"), ())

    assert not moved.moves
    assert Counter(moved.owners.values()) == {"a": SLOTS // 2, "b": SLOTS // 2}


def test_the_slots_of_a_deleted_member_are_assigned_at_once() -> None:
    """There is no member to wait for."""
    first = assigned("a", "b")

    second = revise(first, holding(first, "b"), {"a"})

    assert set(second.owners.values()) == {"b"}
    assert not second.moves


def test_an_owner_that_is_not_seen_keeps_its_slots() -> None:
    """A watch may be behind; only a Lease that does not exist frees slots."""
    first = assigned("a", "b")

    assert set(revise(first, holding(first, "b"), ()).owners.values()) == {"a", "b"}


def test_a_leaving_member_gives_slots_up_as_they_drain() -> None:
    """It need not observe the move of slots that it will not get again."""
    first = assigned("a", "b")
    last = min(first.slots_of("a"))
    reports = holding(first, "b") | {"a": MemberReport("uid", 0, frozenset({last}), leaving=True)}

    second = revise(first, reports, ())

    assert [slot for slot, owner in second.owners.items() if owner == "a"] == [last]
    assert second.moves == {last: SlotMove("b", second.epoch)}


@pytest.mark.parametrize(("limit", "workers"), [(1, 1), (2, 2), (5, 3), (None, 3)])
def test_a_limit_leaves_members_as_standbys(limit: int | None, workers: int) -> None:
    """`--shards=N`: they get slots when another member is deleted."""
    found = revise(Assignment("uid"), joined("a", "b", "c"), (), limit)

    assert len(set(found.owners.values())) == workers


def test_a_standby_does_not_replace_a_member_that_works() -> None:
    """Names do not decide."""
    first = revise(Assignment("uid"), joined("b"), (), 1)

    assert revise(first, holding(first, "b") | joined("a"), (), 1) == first


def test_a_new_object_gives_no_slots_before_all_members_have_observed_it() -> None:
    """They may still work by the one that was deleted."""
    new = Assignment("new")
    reports = {"a": MemberReport("new"), "b": MemberReport("uid", 7, frozenset({3}))}

    assert revise(new, reports, ()) == new
    assert revise(new, reports | {"b": MemberReport("new", 0, frozenset({3}))}, ()) == new
    assert revise(new, reports, {"b"}).epoch == 1
    assert revise(new, {"a": MemberReport("new"), "b": MemberReport("new")}, ()).epoch == 1


def test_a_member_drains_moving_slots() -> None:
    """It takes back what moves no more."""
    slots = MemberSlots("a")
    first = assigned("a")
    assert slots.observe(first) == SlotChange(gained=frozenset(range(SLOTS)))
    moving = replace(first, epoch=2, moves={3: SlotMove("b", 2)})

    assert slots.observe(moving) == SlotChange(lost=frozenset({3}))
    assert slots.report == MemberReport("uid", 2, frozenset(range(SLOTS)))
    assert slots.observe(first) == SlotChange()  # it is older
    assert slots.observe(replace(first, epoch=3)) == SlotChange(gained=frozenset({3}))
    assert not slots.draining


def test_a_deleted_assignment_drains_everything() -> None:
    """The next one begins without owners."""
    slots = MemberSlots("a")
    slots.observe(assigned("a"))

    assert slots.observe(None).lost == frozenset(range(SLOTS))
    assert slots.report == MemberReport("", 0, frozenset(range(SLOTS)))


def test_assignments_and_reports_are_read_as_they_were_written() -> None:
    """They are annotations of Leases."""
    assignment = replace(assigned("a", "b"), moves={3: SlotMove("b", 1)})
    report = MemberReport("uid", 4, frozenset({1, 2}), leaving=True)

    assert decode_assignment("uid", encode_assignment(assignment)) == assignment
    assert decode_report(encode_report(report)) == report


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"epoch": 1, "owners": {"a": [128]}, "moves": {}}', "[" * 9999]
)
def test_an_invalid_annotation_is_an_error(text: str) -> None:
    """A user may have edited it."""
    with pytest.raises(ValueError):  # noqa: PT011 also that of json
        decode_assignment("uid", text)
    with pytest.raises(ValueError):  # noqa: PT011
        decode_report(text)


class Handover:
    """Members and coordinators over one API server; each observes the others late or never.

    The steps are random; a frozen or killed member writes nothing once its Lease is deleted.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.history: list[Assignment | None] = [None]
        self.objects = self.names = self.handovers = 0
        self.members: dict[str, MemberSlots] = {}
        self.seen: dict[str, int] = {}
        self.reports: dict[str, list[MemberReport]] = {}
        self.running: dict[str, set[int]] = {}
        self.gone: set[str] = set()

    def step(self) -> None:
        """Let something happen."""
        often = (self.observe, self.end_runs, self.report, self.coordinate)
        seldom = (self.join, self.leave, self.fail, self.delete_the_object)
        (happens,) = self.random.choices([*often, *seldom], [9, 9, 9, 9, 4, 1, 2, 1])
        if self.members or happens in {self.join, self.coordinate}:
            happens()

    def any_member(self) -> str:
        return self.random.choice(sorted(self.members))

    def join(self) -> None:
        """Add a member; it may see nothing yet."""
        if len(self.members) < 4:
            name = f"web-{self.names}"
            self.names += 1
            self.members[name] = MemberSlots(name)
            self.reports[name], self.seen[name], self.running[name] = [MemberReport()], 0, set()

    def observe(self) -> None:
        """Let a member see a later assignment, and begin a run of each of its slots."""
        name = self.any_member()
        newest = len(self.history) - 1
        self.seen[name] = self.random.choice([newest, self.random.randint(self.seen[name], newest)])
        self.members[name].observe(self.history[self.seen[name]])
        self.handovers += len(self.members[name].active - self.running[name])
        self.running[name] |= self.members[name].active

    def end_runs(self) -> None:
        """Let the last runs of some draining slots end."""
        name = self.any_member()
        for slot in self.members[name].draining:
            if self.random.random() < 0.5:
                self.running[name].discard(slot)
                self.members[name].drained(slot)

    def report(self) -> None:
        """Write the report of a member."""
        name = self.any_member()
        self.reports[name].append(self.members[name].report)

    def leave(self) -> None:
        """Begin the end of a member."""
        self.members[self.any_member()].leave()

    def fail(self) -> None:
        """Delete the Lease of a member that was killed or frozen, or has left."""
        name = self.any_member()
        del self.members[name]
        self.gone.add(name)

    def coordinate(self) -> None:
        """Revise the newest assignment by reports of which some are old; others are a conflict."""
        current = self.history[-1]
        if current is None:
            self.objects += 1
            self.history.append(Assignment(f"object {self.objects}"))
            return
        reports = {name: self.random.choice(self.reports[name][-3:]) for name in self.members}
        new = revise(current, reports, self.gone, self.random.choice([None, None, None, 2]))
        if new != current:
            self.history.append(new)

    def delete_the_object(self) -> None:
        """Delete the assignment."""
        if self.random.random() < 0.2:
            self.history.append(None)


@pytest.mark.parametrize("seed", range(20))
def test_no_slot_has_two_owners_at_once(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """For all failures, and all delays of members."""
    monkeypatch.setattr(slot_assignment, "SLOTS", 8)
    handover = Handover(seed)
    for _ in range(1000):
        handover.step()
        slots = Counter(slot for name in handover.members for slot in handover.running[name])
        assert not [slot for slot, count in slots.items() if count > 1]
        for name, member in handover.members.items():
            assert handover.running[name] <= member.held
    assert handover.handovers > 10
