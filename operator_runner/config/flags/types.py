"""Readers of flag values as Go programs write them: booleans, durations, addresses.

Each raises click.BadParameter, to which click adds the name of the flag.
"""

from __future__ import annotations

import re
from datetime import timedelta

import click

from operator_runner.core.durations import DURATION_HINT, parse_duration
from operator_runner.core.object_names import LABEL_PATTERN
from operator_runner.core.settings import Address, ShardSettings

_SERVICE = re.compile(rf"(?:({LABEL_PATTERN})/)?({LABEL_PATTERN})(?::([1-9][0-9]{{0,4}}))?")

GO_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
GO_FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})


def go_bool(text: str) -> bool:
    """Read a boolean in any of the ways of Go's strconv.ParseBool."""
    if text not in GO_TRUE | GO_FALSE:
        raise click.BadParameter(
            f"invalid boolean {text!r}: write the flag alone, or with =true or =false"
        )
    return text in GO_TRUE


def go_duration(text: str) -> timedelta:
    """Read `90s` or `1h30m`; negative values are accepted, the flag defines their meaning."""
    try:
        return parse_duration(text)
    except ValueError as error:
        message = f"{error}; {DURATION_HINT}"
        raise click.BadParameter(message) from error


def bind_address(text: str) -> str:
    """Check `:8443`, `127.0.0.1:8443`, or `0`; return the text, because None means `not given`."""
    try:
        Address.parse(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return text


def service(text: str) -> tuple[str, str, int]:
    """Read `namespace/name:port`; the namespace may be left out (empty), the port too (443)."""
    found = _SERVICE.fullmatch(text)
    if found is None or int(found[3] or 0) > 65535:  # noqa: PLR2004
        raise click.BadParameter(f"invalid Service {text!r}: expected [namespace/]name[:port]")
    return found[1] or "", found[2], int(found[3] or 443)


def shards(text: str) -> ShardSettings:
    """Read `auto`, or the maximum number of replicas that work."""
    if text == "auto":
        return ShardSettings()
    if not text.isascii() or not text.isdigit() or not int(text):
        raise click.BadParameter(f"invalid number of shards {text!r}: write auto, or 1 or more")
    return ShardSettings(int(text))
