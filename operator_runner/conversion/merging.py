"""Three-way merge of an edit in a lower version into a richer value. Pure.

The richer value has data that the lower version cannot represent. Edited parts are taken from the
edit, the others are kept.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

from operator_runner.conversion.field_paths import ABSENT, same

_LEVELS = 50
_COMPARISONS = 100_000
"""Bounds, because each level compares the whole subtree; beyond them, the edited value is used."""


def merge(base: Any, edited: Any, rich: Any, levels: int = _LEVELS) -> Any:
    """Return `rich` with the changes from `base` to `edited`; ABSENT is a value too.

    Maps are merged key by key. Lists are merged item by item if the edit neither added nor
    removed one; otherwise the edited list is used, as are values below `levels` levels.
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
    # An unseen item that contains an edited one would be a duplicate: for example the port
    # 9090 after 8080 was edited to 9090.
    unseen = [item for item in rich[seen:] if not any(_contains(item, new) for new in changed)]
    return merged + unseen


def _contains(item: Any, new: Any) -> bool:
    if isinstance(item, dict) and isinstance(new, dict):
        return all(same(item.get(key, ABSENT), value) for key, value in new.items())
    return same(item, new)
