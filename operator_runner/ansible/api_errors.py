"""Shorten errors of the API server that repeat the whole object. Pure.

Objects that cannot be decoded are quoted in the message and again in its causes, each time before
the reason: `Invalid value: "{...}": json: cannot unmarshal string into Go struct field ...`.
"""

from __future__ import annotations

import re

_SHORT_CHARACTERS = 200
"""Length up to which a quoted value is kept."""
# Each level of JSON in JSON doubles the backslashes before a quotation mark.
_OPENING = re.compile(r'Invalid value: (\\{0,15}")(?=\{)')


def without_quoted_objects(message: str) -> str:
    """Return the message of a failure with `{...}` in place of long objects in `Invalid value`."""
    parts: list[str] = []
    kept = at = 0
    unclosed: set[str] = set()
    while (opening := _OPENING.search(message, at)) is not None:
        quote, at = opening[1], opening.end()
        if quote in unclosed:
            continue
        end = message.find("}" + quote + ": ", at)
        if end < 0:
            unclosed.add(quote)
        elif end - at > _SHORT_CHARACTERS:
            parts += [message[kept:at], "{...}"]
            kept = at = end + 1
    return "".join([*parts, message[kept:]])
