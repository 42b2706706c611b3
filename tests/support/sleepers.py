"""Processes that a test recognises on a machine that others use too."""

from __future__ import annotations

import secrets

import psutil


def new_nap() -> str:
    """Return a number of seconds by which a `sleep` of one test is known."""
    return str(10_000_000 + secrets.randbelow(10_000_000))


def sleepers(*naps: str) -> list[str]:
    """Return the command lines of the `sleep` processes with one of these numbers."""
    found = (process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"]))
    return [" ".join(line) for line in found if line[:1] == ["sleep"] and {*line} & {*naps}]
