"""Sharding: which member runs the resources of which slot, and how a slot changes its owner. Pure.

A resource belongs to a slot, by its uid. An assignment gives each slot an owner. A slot that is to
move keeps its owner until the owner has released it, or is gone. The owner then writes the backoff
and throttling of the resources into its Lease, with which the next one continues. See
docs/adr/0035-shards.md.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TypeAlias

SLOTS = 128
"""The same in all versions, or replicas of two of them would disagree during a rolling update."""

Member: TypeAlias = str
"""Identity of a replica: the name of its Pod, `_` and a random suffix."""


@dataclass(frozen=True, slots=True)
class SlotMove:
    """A slot that is to move; `since` is the epoch that announced it."""

    to: Member
    since: int


@dataclass(frozen=True, slots=True)
class Assignment:
    """The owner of each slot, and the moves in progress. A slot without an owner is free.

    `uid` is that of the object: one that was deleted and created again begins at epoch 0, without
    owners, until all members have observed it.
    """

    uid: str = ""
    epoch: int = 0
    owners: Mapping[int, Member] = field(default_factory=dict)
    moves: Mapping[int, SlotMove] = field(default_factory=dict)

    def slots_of(self, member: Member) -> frozenset[int]:
        """Return the slots that a member owns and that do not move away."""
        return frozenset(
            slot
            for slot, owner in self.owners.items()
            if owner == member and slot not in self.moves
        )


@dataclass(frozen=True, slots=True)
class MemberReport:
    """Report of a member: uid and epoch of the assignment that it has observed.

    A slot is `held` as long as a run of one of its resources may write. A member that is `leaving`
    takes no more slots, even if more are assigned to it.
    """

    uid: str = ""
    epoch: int = 0
    held: frozenset[int] = frozenset()
    leaving: bool = False


@dataclass(frozen=True, slots=True)
class SlotChange:
    """The change of a new assignment for a member: slots to begin with, and slots to drain."""

    gained: frozenset[int] = frozenset()
    lost: frozenset[int] = frozenset()


class MemberSlots:
    """The slots of one member."""

    def __init__(self, member: Member) -> None:
        """Start without slots."""
        self.member = member
        self.active: frozenset[int] = frozenset()
        """Slots whose resources may be run."""
        self.draining: frozenset[int] = frozenset()
        """Slots without new runs, whose last runs may still be in progress."""
        self.uid, self.epoch = "", 0
        self._leaving = False

    @property
    def held(self) -> frozenset[int]:
        """Slots whose resources may be written."""
        return self.active | self.draining

    @property
    def report(self) -> MemberReport:
        """The report for the coordinator."""
        return MemberReport(self.uid, self.epoch, self.held, self._leaving)

    def observe(self, assignment: Assignment | None) -> SlotChange:
        """Follow an assignment; None if it does not exist. An older one changes nothing."""
        new = assignment or Assignment()
        if new.uid == self.uid and new.epoch <= self.epoch:
            return SlotChange()
        self.uid, self.epoch = new.uid, new.epoch
        return self._set_active(frozenset() if self._leaving else new.slots_of(self.member))

    def leave(self) -> SlotChange:
        """Take no more slots, and drain the present ones."""
        self._leaving = True
        return self._set_active(frozenset())

    def drained(self, slot: int) -> None:
        """Release a slot whose last run has ended."""
        self.draining -= {slot}

    def _set_active(self, slots: frozenset[int]) -> SlotChange:
        change = SlotChange(gained=slots - self.active, lost=self.active - slots)
        self.draining = (self.draining | change.lost) - slots
        self.active = slots
        return change


def slot_of(uid: str) -> int:
    """Return the slot of a resource."""
    return _hash(uid) % SLOTS


def revise(
    current: Assignment,
    reports: Mapping[Member, MemberReport],
    gone: Collection[Member],
    limit: int | None = None,
) -> Assignment:
    """Return the next assignment; `current` itself if nothing is to change.

    `reports` are those of the members whose Lease exists, `gone` are members whose Lease does not
    exist any more. An owner that is in neither keeps its slots. At most `limit` members get slots.
    """
    if not current.epoch and not _have_all_observed(current, reports, gone):
        return current
    owners = {
        slot: owner
        for slot, owner in current.owners.items()
        if owner not in gone and not _has_released(owner, slot, current, reports)
    }
    intended = {**owners, **{slot: move.to for slot, move in current.moves.items()}}
    joined = [each for each, report in reports.items() if not report.leaving and each not in gone]
    targets = assign(intended, chosen(intended, joined, limit))
    epoch, moves = current.epoch + 1, {}
    for slot, target in targets.items():
        owner = owners.setdefault(slot, target)
        if owner != target:
            announced = current.moves.get(slot)
            moves[slot] = SlotMove(target, epoch if announced is None else announced.since)
    if owners == current.owners and moves == current.moves:
        return current
    return Assignment(current.uid, epoch, owners, moves)


def chosen(
    owners: Mapping[int, Member], members: Iterable[Member], limit: int | None
) -> list[Member]:
    """Return the members that get slots: those with the most slots first."""
    counts = _slots_by_owner(owners)
    return sorted(members, key=lambda each: (-len(counts[each]), each))[:limit]


def assign(owners: Mapping[int, Member], members: Collection[Member]) -> dict[int, Member]:
    """Return an owner among `members` for each slot; empty without members.

    Owners keep their slots up to their quota. The numbers of slots differ by one at most.
    """
    if not members:
        return {}
    owned = _slots_by_owner(owners)
    quota, extra = divmod(SLOTS, len(members))
    room: dict[Member, int] = {}
    result: dict[int, Member] = {}
    for rank, member in enumerate(chosen(owners, members, None)):
        room[member] = quota + (rank < extra)
        best = sorted(owned[member], key=lambda slot: -_weight(slot, member))
        for slot in best[: room[member]]:
            result[slot] = member
            room[member] -= 1
    for slot in range(SLOTS):
        if slot not in result:
            free = [member for member in members if room[member]]
            result[slot] = max(free, key=lambda member: _weight(slot, member))
            room[result[slot]] -= 1
    return result


def encode_assignment(assignment: Assignment) -> str:
    """Return an assignment as JSON."""
    slots = _slots_by_owner(assignment.owners)
    moves = {
        str(slot): {"to": move.to, "since": move.since} for slot, move in assignment.moves.items()
    }
    owners = {member: sorted(slots[member]) for member in sorted(slots)}
    return json.dumps({"epoch": assignment.epoch, "owners": owners, "moves": moves})


def decode_assignment(uid: str, text: str) -> Assignment:
    """Read the assignment of an object with this uid. Raises ValueError for anything else."""
    try:
        content = json.loads(text)
        owners = {
            _slot(slot): str(member)
            for member, slots in content["owners"].items()
            for slot in slots
        }
        moves = {
            _slot(slot): SlotMove(str(move["to"]), int(move["since"]))
            for slot, move in content["moves"].items()
        }
        return Assignment(uid, int(content["epoch"]), owners, moves)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"invalid assignment: {error!r}") from error


def encode_report(report: MemberReport) -> str:
    """Return a report as JSON."""
    held = sorted(report.held)
    return json.dumps(
        {"uid": report.uid, "epoch": report.epoch, "held": held, "leaving": report.leaving}
    )


def decode_report(text: str) -> MemberReport:
    """Read a report. Raises ValueError for anything else."""
    try:
        content = json.loads(text)
        held = frozenset(map(_slot, content["held"]))
        epoch = int(content["epoch"])
        return MemberReport(str(content["uid"]), epoch, held, content["leaving"] is True)
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"invalid report: {error!r}") from error


def _has_released(
    owner: Member, slot: int, current: Assignment, reports: Mapping[Member, MemberReport]
) -> bool:
    report, move = reports.get(owner), current.moves.get(slot)
    if report is None or slot in report.held:
        return False
    # An older report may be from before the owner got the slot.
    has_observed = report.uid == current.uid and move is not None and report.epoch >= move.since
    return report.leaving or has_observed


def _have_all_observed(
    current: Assignment, reports: Mapping[Member, MemberReport], gone: Collection[Member]
) -> bool:
    """Return whether every member has stopped working by a former assignment."""
    return all(
        member in gone or (report.uid == current.uid and not report.held)
        for member, report in reports.items()
    )


def _slots_by_owner(owners: Mapping[int, Member]) -> defaultdict[Member, list[int]]:
    slots: defaultdict[Member, list[int]] = defaultdict(list)
    for slot, owner in owners.items():
        slots[owner].append(slot)
    return slots


def _slot(value: object) -> int:
    slot = int(str(value))
    if not 0 <= slot < SLOTS:
        raise ValueError(f"invalid slot {slot}: expected 0 to {SLOTS - 1}")
    return slot


def _weight(slot: int, member: Member) -> int:
    """Return the weight of rendezvous hashing: the member with the highest one is preferred."""
    return _hash(f"{slot} {member}")


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())


MAX_STATES = 1000
"""Resources in one annotation: about 100 KB of the 256 KiB that an object may have."""
_MAX_COUNT = 1_000_000
"""The delays reach their limits long before."""


@dataclass(frozen=True, slots=True)
class BackoffState:
    """The counts from which the delay of a run follows; all are 0 if nothing delays it."""

    failures: int = 0
    """Consecutive failures."""
    streak: int = 0
    """Consecutive echoes of a resource that is throttled."""


def bounded(states: Mapping[str, BackoffState]) -> dict[str, BackoffState]:
    """Return at most `MAX_STATES` states by uid: those with the longest delays."""
    if len(states) <= MAX_STATES:
        return dict(states)
    longest = sorted(states.items(), key=lambda item: -max(asdict(item[1]).values()))
    return dict(longest[:MAX_STATES])


def encode_states(states: Mapping[str, BackoffState]) -> str:
    """Return states by uid as JSON, empty without any."""
    if not states:
        return ""
    found = {
        uid: {name: count for name, count in asdict(state).items() if count}
        for uid, state in states.items()
    }
    return json.dumps(found, separators=(",", ":"))


def decode_states(text: str) -> dict[str, BackoffState]:
    """Read states by uid; what is not a state is dropped, as after a restart."""
    try:
        content = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    if not isinstance(content, dict):
        return {}
    states = {uid: _state(value) for uid, value in content.items()}
    return bounded({uid: state for uid, state in states.items() if state != BackoffState()})


def _state(value: object) -> BackoffState:
    counts = value if isinstance(value, dict) else {}
    return BackoffState(*(_count(counts.get(name)) for name in BackoffState.__slots__))


def _count(value: object) -> int:
    is_count = isinstance(value, int) and not isinstance(value, bool) and value > 0
    return min(value, _MAX_COUNT) if is_count and isinstance(value, int) else 0
