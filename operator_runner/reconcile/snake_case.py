"""Convert camelCase names of a spec to names of variables, exactly as ansible-operator. Pure.

Roles depend on these names, so every oddity is kept: `HTTPSPort` becomes `http_s_port`, a capital
at the start leaves an underscore, `.` and `/` are kept. Where ansible-operator depends on Go's
random order of maps, the order is fixed here: special words are searched as HTTP, then URL, then
IP, and `snake_keys` documents which of two equal names wins.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from operator_runner.core.model import Json

_SPECIAL_WORDS = ("HTTP", "URL", "IP")
_NUMBERS = re.compile(r"([a-zA-Z])([0-9]+)([a-zA-Z]([0-9]+))")
_SEPARATOR = re.compile("[ _-]")
_WORD = re.compile("(?s:.)(?:(?![A-Z][a-z]|[a-z][A-Z])(?s:.))*(?:[a-z](?=[A-Z]))?")
"""Ends before a capital that a small letter follows, or after a small one that a capital follows.

One expression: keys of a resource may have 1.3 MB in total, and all are converted in each run.
"""


def to_snake(name: str) -> str:
    """Return the variable's name for a field's name; an empty name stays empty."""
    if name.isascii() and name.isalpha() and name.islower():
        return name
    text = _NUMBERS.sub(r"\1 \2 \3", name).strip(" ")
    if not text:
        return ""
    prefix = "_" if "A" <= text[0] <= "Z" else ""
    for word in _SPECIAL_WORDS:
        text = _isolate(text, word)
    words = _split(text)
    if words[0].upper() in _SPECIAL_WORDS:
        prefix = ""
    return prefix + "_".join(words)


def snake_keys(value: Any) -> Any:
    """Return a copy of a JSON value with all names converted, including maps in lists.

    Where two names become one, the value under the name that needed no conversion wins, else
    that of the alphabetically last: `foo_bar` over `fooBar` over `foo-bar`.
    """
    if isinstance(value, dict):
        return _snake_map(value)
    if isinstance(value, list):
        return [snake_keys(item) for item in value]
    return value


def _snake_map(value: Json) -> Json:
    names = {key: to_snake(key) for key in value}
    ordered = sorted(value, key=lambda key: (names[key] == key, key))
    return {names[key]: snake_keys(value[key]) for key in ordered}


def _isolate(text: str, word: str) -> str:
    """Put underscores around the first `word` in `text`; a plural s becomes part of it."""
    start = text.find(word)
    if start < 0:
        return text
    head, tail = text[:start], text[start + len(word) :]
    if not tail:
        # At the end the underscore is added even if nothing precedes it: URL becomes _URL.
        return f"{head}_{word}"
    if tail == "s":
        return f"{head}_{word}S"
    if tail[0] == "s":
        word, tail = f"{word}S", tail[1:]
    return f"{head}_{word}_{tail}" if head else f"{word}_{tail}"


def _split(text: str) -> list[str]:
    """Cut at separators and at changes of case; an acronym such as JSON is one word."""
    parts = _SEPARATOR.split(text)
    return [word.lower() for part in parts for word in _WORD.findall(part) or [""]]
