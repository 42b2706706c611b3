"""Values of a review that are nested too deep to be decoded are converted as one text each. Pure.

The API server stores objects of 10,000 levels, Python's JSON decoder raises RecursionError near
1,000. Such a value is replaced by a mark, a text that no stored object can contain, and the mark in
the response by the value.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from operator_runner.core.canonical_json import canonical_json
from operator_runner.core.json_bounds import MAX_DEPTH, depth, prune, values_at

_REVIEW_LEVELS = 3
"""Levels above each object, in the request as in the response."""
_MAX_LEVELS = 9_900
"""Levels of a response. The API server decodes 10,000; expressions may add some."""
_MARK = "\ud800"
"""Begins each mark. The API server stores no lone surrogates: it replaces them by U+FFFD."""
_CUT = f"{_MARK}cut-"
"""Begins the mark of a value that has too many levels for a response, and is cut there."""
_MARKED = re.compile(rb'"\\ud800(?:cut-)?[0-9a-f]{32}"')
"""A mark in JSON in ASCII."""
_IN_TEXT = re.compile(rb"\\ud800(?:cut-)?[0-9a-f]{32}")
"""The same as a part of a text, which may be JSON itself."""


class DeepValues:
    """The values below MAX_DEPTH levels of the objects of a review that have as many themselves."""

    def __init__(self, review: bytes) -> None:
        """Take them out of a review in JSON; `shallow` is the review with marks."""
        levels = _REVIEW_LEVELS + MAX_DEPTH
        self._values: dict[bytes, bytes] = {}
        parts: list[bytes] = []
        end = 0
        for begin, after in values_at(review, levels + 1):
            # The decoder has room for others: to mark many short ones would take long.
            if after - begin > 2 * MAX_DEPTH and (added := depth(review[begin:after])) > MAX_DEPTH:
                mark = self._mark(review[begin:after], added, _MAX_LEVELS - levels)
                parts += [review[end:begin], mark]
                end = after
        self.shallow = b"".join([*parts, review[end:]])

    def _mark(self, value: bytes, added: int, levels: int) -> bytes:
        is_cut = added > levels
        digest = hashlib.sha256(value).hexdigest()[:32]
        mark = f'"{_CUT if is_cut else _MARK}{digest}"'.encode("ascii", errors="backslashreplace")
        self._values[mark] = prune(value, levels) if is_cut else value
        return mark

    def restore(self, response: bytes) -> bytes:
        """Return a response in ASCII with the values in place of their marks."""
        return _MARKED.sub(lambda mark: self._values.get(mark[0], mark[0]), response)


def is_cut(value: Any) -> bool:
    """Return whether a response cannot contain the whole value."""
    return _CUT in canonical_json(value)


def has_marks(text: str) -> bool:
    """Return whether JSON contains values that are nested too deep."""
    return _MARK in text


def check_result(value: Any) -> None:
    """Raise ValueError if the result of an expression has a deep value within a text."""
    text = json.dumps(value).encode()
    if _IN_TEXT.search(_MARKED.sub(b"", text)):
        raise ValueError(f"values nested deeper than {MAX_DEPTH} levels cannot be made text")
