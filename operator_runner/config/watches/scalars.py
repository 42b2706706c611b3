"""Resolve plain YAML scalars to values. Pure.

The rules are those of the YAML 1.1 reader of ansible-operator, which differ from PyYAML's in
places that users meet: `1e3` is a number, `1:30` and `2024-05-01` are text, `y` is true.
"""

from __future__ import annotations

import re
from typing import TypeAlias

Scalar: TypeAlias = str | int | float | bool | None

_WORDS: dict[str, Scalar] = {"": None, "~": None, "null": None, "Null": None, "NULL": None}
for _word in ("y", "yes", "true", "on"):
    _WORDS |= dict.fromkeys((_word, _word.capitalize(), _word.upper()), True)
for _word in ("n", "no", "false", "off"):
    _WORDS |= dict.fromkeys((_word, _word.capitalize(), _word.upper()), False)
for _word in (".inf", ".Inf", ".INF"):
    _WORDS |= {_word: float("inf"), f"+{_word}": float("inf"), f"-{_word}": float("-inf")}
_WORDS |= dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan"))

_INTEGERS = (
    (re.compile(r"[-+]?0[xX][0-9a-fA-F]+"), 16),
    (re.compile(r"[-+]?0[oO]?[0-7]+"), 8),
    (re.compile(r"[-+]?0[bB][01]+"), 2),
    (re.compile(r"[-+]?(0|[1-9][0-9]*)"), 10),
)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")


def resolve(text: str) -> Scalar:
    """Return the value of an unquoted scalar without a tag."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    digits = text.replace("_", "")
    for pattern, base in _INTEGERS:
        if pattern.fullmatch(digits):
            return int(re.sub("[oO]", "", digits) if base == 8 else digits, base)  # noqa: PLR2004
    return float(digits) if _FLOAT.fullmatch(digits) else text
