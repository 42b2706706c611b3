"""Backoff and throttling of resources whose slot moves, encoded as an annotation. Pure.

A member that releases a slot writes it into its Lease, and the next owner of the slot continues
with it. See docs/adr/0035-shards.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

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
