"""Shorten long texts: the result has their first and last part, and how much is missing. Pure.

The cause of an error often comes first, and its cure last.
"""

from __future__ import annotations

import re

_MARK = re.compile(r" \[cut: \d{1,12} of (\d{1,12}) characters\] ")
_MARK_BYTES = 64


def shortened(text: str, characters: int) -> str:
    """Return a text on one line of at most `characters`, cut in the middle, for a column."""
    line = " ".join(text.split())
    if len(line) <= characters:
        return line
    first = (characters - 3) // 2
    return f"{line[:first]}...{line[first + 3 - characters :]}"


def truncated(text: str, limit: int) -> str:
    """Return a text of at most `limit` bytes of UTF-8; a mark shows how much was cut.

    `limit` is more than 100. A text that was cut before keeps the length of the original in its
    mark.
    """
    if len(text.encode(errors="replace")) <= limit:
        return text
    mark = _MARK.search(text)
    total = int(mark[1]) if mark else len(text)
    first, last = (text[: mark.start()], text[mark.end() :]) if mark else (text, text)
    room = limit - _MARK_BYTES
    # A character has a byte at least, so that no more of a long text has to be encoded.
    first = first[:room].encode(errors="replace")[: room * 2 // 3].decode(errors="ignore")
    last = last[-room:].encode(errors="replace")[-(room // 3) :].decode(errors="ignore")
    return f"{first} [cut: {total - len(first) - len(last)} of {total} characters] {last}"
