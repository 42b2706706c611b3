"""The slots of a replica whose running Jobs it has listed, with shards."""

from __future__ import annotations

import asyncio

from operator_runner.core.slot_assignment import slot_of


class JobSlots:
    """Slots from when they are gained until their Jobs have been listed, and from then on."""

    def __init__(self) -> None:
        """Start without slots."""
        self._gained: frozenset[int] = frozenset()
        self._listing: frozenset[int] = frozenset()
        self._listed: frozenset[int] = frozenset()
        self._changed = asyncio.Event()

    def gained(self, slots: frozenset[int]) -> None:
        """Have the Jobs of these slots listed."""
        self._gained |= slots
        self._changed.set()

    def released(self, slots: frozenset[int]) -> None:
        """Drop slots that another replica has from now on."""
        self._gained -= slots
        self._listing -= slots
        self._listed -= slots

    async def begin_listing(self) -> None:
        """Wait for slots that were gained; their Jobs are to be listed from now on."""
        while not self._gained:
            self._changed.clear()
            await self._changed.wait()
        self._listing, self._gained = self._gained, frozenset()

    def end_listing(self) -> frozenset[int]:
        """Return the slots whose Jobs were listed, without those that were released meanwhile."""
        slots, self._listing = self._listing, frozenset()
        self._listed |= slots
        return slots

    def is_listing(self, uid: str) -> bool:
        """Return whether the Jobs of the resource are being listed."""
        return slot_of(uid) in self._listing

    def is_listed(self, uid: str) -> bool:
        """Return whether the running Jobs of the resource are known."""
        return slot_of(uid) in self._listed
