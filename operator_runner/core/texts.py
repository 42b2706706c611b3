"""Make texts fit to be shown: shortened, without secrets, safe to print. Pure.

A shortened text has its first and last part, and how much is missing: the cause of an error often
comes first, and its cure last. A secret is recognized by the name of a key or a pattern in a text,
in log lines, records of runs and traces; for `no_log` see `ansible/executor.py`. Texts from the
cluster and from runs must not control a terminal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

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


REDACTED = "[redacted]"

_SECRET = re.compile(
    r"(^|_)(authorization|cookie|credentials?|kubeconfig|passphrase|passw(or)?d|secret|token|"
    r"(access|api|client|private|secret)_key(_data)?)$"
)
_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# Secrets also hide in texts: a header that an HTTP library logs, a URL with a password.
_BEARER = re.compile(r"\b(bearer)\s+[\w.~+/=-]{12,}", re.IGNORECASE)
_IN_URL = re.compile(r"(://[^\s/:@]*):[^\s/@]+@")


def redact(value: Any) -> Any:
    """Return a copy of the value with every secret in it replaced, at any depth."""
    match value:
        case str():
            return _redact_text(value)
        case Mapping():
            return {key: REDACTED if _is_secret(key, v) else redact(v) for key, v in value.items()}
        case list() | tuple():
            return [redact(item) for item in value]
        case _:
            return value


def _is_secret(key: object, value: object) -> bool:
    """Say if the key names a secret; numbers and flags (`token=True`) give nothing away."""
    if value is None or isinstance(value, bool | int | float):
        return False
    name = str(key)
    if not name.islower():
        name = _WORD_START.sub("_", name).lower()
    return _SECRET.search(name.replace("-", "_")) is not None


def _redact_text(text: str) -> str:
    # Most texts have neither, and a search for a word takes a tenth of the time of its pattern.
    if "bearer" in text.lower():
        text = _BEARER.sub(rf"\1 {REDACTED}", text)
    return _IN_URL.sub(rf"\1:{REDACTED}@", text) if "://" in text else text


_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
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
