"""Truncate long texts; the result has their first part and their length. Pure."""

from __future__ import annotations

import re

_MARK = re.compile(r" \[cut: the first \d+ of (\d+) characters\]\Z")
_MARK_BYTES = 64


def truncated(text: str, limit: int) -> str:
    """Return a text of at most `limit` bytes of UTF-8; a mark shows how much was cut.

    `limit` is more than 100. A text that was cut before keeps the length of the original in its
    mark.
    """
    if len(text.encode(errors="replace")) <= limit:
        return text
    mark = _MARK.search(text)
    total = int(mark[1]) if mark else len(text)
    whole = text[: mark.start()] if mark else text
    # A character has a byte at least, so that no more of a long text has to be encoded.
    room = limit - _MARK_BYTES
    kept = whole[:room].encode(errors="replace")[:room].decode(errors="ignore")
    return f"{kept} [cut: the first {len(kept)} of {total} characters]"
