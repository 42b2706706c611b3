"""What somebody edited in a lower version, carried over into a richer value. Pure.

The richer value has more than the lower version can say. What the edit changed is taken from
the edit, what it could not see stays.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

from operator_runner.conversion.field_paths import ABSENT, same

_LEVELS = 50
_COMPARISONS = 100_000
"""Bounds, since each level compares all that is below; what is beyond counts as it was edited."""


def merge(base: Any, edited: Any, rich: Any, levels: int = _LEVELS) -> Any:
    """Return `rich` with the edit that leads from `base` to `edited`; ABSENT is a value too.

    Maps are merged key by key. Lists are merged item by item where the edit neither added nor
    removed one; else the edited list counts as it is. So does what is below `levels` levels.
    """
    if same(base, edited):
        return rich
    if levels == 0:
        return edited
    match base, edited, rich:
        case dict(), dict(), dict():
            keys = dict.fromkeys([*rich, *edited])
            below = levels - 1
            merged = {
                key: merge(_of(base, key), _of(edited, key), _of(rich, key), below) for key in keys
            }
            return {key: value for key, value in merged.items() if value is not ABSENT}
        case list(), list(), list() if len(base) == len(edited) <= len(rich):
            return _merge_lists(base, edited, rich, levels - 1)
        case _:
            return edited


def _of(side: dict[str, Any], key: str) -> Any:
    return side.get(key, ABSENT)


def _merge_lists(base: list[Any], edited: list[Any], rich: list[Any], levels: int) -> list[Any]:
    seen = len(edited)
    changed = [new for old, new in zip(base, edited, strict=True) if not same(old, new)]
    if len(changed) * (len(rich) - seen) > _COMPARISONS:
        return edited
    merged = [merge(*items, levels) for items in zip_longest(base, edited, rich[:seen])]
    # An unseen item that says all that an edited one says would be there twice: for example
    # the port 9090 after 8080 was edited to 9090.
    unseen = [item for item in rich[seen:] if not any(_says(item, new) for new in changed)]
    return merged + unseen


def _says(item: Any, new: Any) -> bool:
    if isinstance(item, dict) and isinstance(new, dict):
        return all(same(item.get(key, ABSENT), value) for key, value in new.items())
    return same(item, new)
