"""Suggest a name for one that is undefined. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Collection

from operator_runner.reconcile.snake_case import to_snake

_MIN_SIMILARITY = 0.75
_MAX_NAMES = 2000
"""Names that are compared; a map of a resource may have any number of keys."""
_MAX_NAME_CHARACTERS = 100


def variable_hint(name: str, known: Collection[str]) -> str:
    """Return what follows `'name' is undefined`: empty, or a colon and the nearest variable."""
    return _hint(name, known, "spec fields are in snake case here")


def key_hint(name: str, known: Collection[str]) -> str:
    """Return what follows `has no attribute 'name'`: empty, or a colon and the nearest key."""
    return _hint(name, known, "nested keys are in snake case too")


def nearest(name: str, known: Collection[str]) -> str | None:
    """Return the most similar name, None if none is similar; case and underscores count less."""
    if len(name) > _MAX_NAME_CHARACTERS:
        return None
    by_letters: dict[str, list[str]] = {}
    for each in sorted(each for each in known if len(each) <= _MAX_NAME_CHARACTERS)[:_MAX_NAMES]:
        by_letters.setdefault(_letters(each), []).append(each)
    found = difflib.get_close_matches(_letters(name), by_letters, 1, _MIN_SIMILARITY)
    return difflib.get_close_matches(name, by_letters[found[0]], 1, 0)[0] if found else None


def suggestion(name: str, known: Collection[str], otherwise: str = "") -> str:
    """Return what follows an unknown name: the most similar one, `otherwise` if none is similar."""
    similar = nearest(name, known)
    return f": did you mean {similar}?" if similar else otherwise


def _letters(name: str) -> str:
    return name.replace("_", "").lower()


def _hint(name: str, known: Collection[str], about_snake_case: str) -> str:
    snake = to_snake(name)
    if snake != name and snake in known:
        return f": {about_snake_case}: {snake}"
    return suggestion(name, known)
