"""Make text from the cluster and from runs safe to print. Pure."""

from __future__ import annotations

import re

_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Control characters but tab and line feed, marks that reorder text, and lone surrogates."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def without_colours(text: str) -> str:
    """Return the text without the escape sequences of colours."""
    return _COLOUR.sub("", text)


def printable(text: str) -> str:
    r"""Return the text with each character that controls a terminal as its escape, such as `\x1b`.

    A resource's user writes texts that an administrator reads on a terminal, where escape
    sequences could retitle, overwrite or hide what was printed before.
    """
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
