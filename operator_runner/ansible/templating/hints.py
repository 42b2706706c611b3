"""Hints for errors in templates: names that are similar, and types that differ. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection

from operator_runner.reconcile.variables import to_snake

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


_WANTS_NUMBER = re.compile(
    r"must be of type (?:integer|number|boolean): \\*\"string\\*\""
    r"|cannot unmarshal string into Go \S+(?: field \S+)? of type \W*(?:u?int|float|bool)"
    r"|expected (?:numeric \(int or float\)|boolean), got (?:string|&\{(?!map\[|\[))"
)
_WANTS_TEXT = re.compile(
    r"must be of type string: \\*\"(?:integer|number|boolean)\\*\""
    r"|cannot unmarshal (?:number|bool)\S* into Go \S+(?: field \S+)? of type \W*string"
    r"|expected string, got (?:int|float|bool|&\{(?!map\[|\[)|&value\.valueUnstructured)"
)
FOR_NUMBERS = (
    "A template returned a string where the API expects a number or a boolean: write "
    "`{{ x | int }}` or `{{ x | bool }}` with `nativeTypes: true` in watches.yaml (or "
    "`jinja2_native`, ANSIBLE_JINJA2_NATIVE), so that templates return the types of their "
    "expressions."
)
# A template that is only a variable keeps the type of a number or boolean, whatever the setting.
FOR_TEXTS = (
    "A template returned a number or a boolean where the API expects a string: write "
    "`{{ x | string }}`, for a boolean `{{ x | string | lower }}`."
)


def with_type_hint(message: str) -> str:
    """Return the message of a failure, with a hint if types of template results caused it."""
    hints = [
        hint
        for pattern, hint in ((_WANTS_NUMBER, FOR_NUMBERS), (_WANTS_TEXT, FOR_TEXTS))
        if pattern.search(message) and hint not in message
    ]
    return " ".join([message.rstrip(), *hints]) if hints else message
