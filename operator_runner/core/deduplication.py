"""Suppress repeated log messages."""

from __future__ import annotations

from collections.abc import Hashable


class Deduplicator:
    """Remembers the keys of messages that were logged, as `Deduplicate` of client-go's warnings."""

    def __init__(self, size: int = 1) -> None:
        """Keep the last `size` different keys; 1 suppresses only consecutive repetitions."""
        self._size = size
        self._keys: dict[Hashable, None] = {}

    def is_new(self, key: Hashable = None) -> bool:
        """Record a key; return False if it is among the kept ones."""
        new = key not in self._keys
        self._keys.pop(key, None)
        self._keys[key] = None
        if len(self._keys) > self._size:
            del self._keys[next(iter(self._keys))]
        return new

    def reset(self) -> None:
        """Forget all keys, after a success: the next failure is logged again."""
        self._keys.clear()
