"""The installed ansible-core, and the newest one that has warm runs."""

from __future__ import annotations

import importlib.metadata

from operator_runner.core.errors import RunError

NEWEST_CORE = (2, 21)
"""The newest ansible-core that the patches are tested with; plays run cold with later ones."""


def is_newer_core() -> bool:
    """Return whether the installed ansible-core is newer than those that patches are for."""
    return tuple(map(int, _installed().split(".")[:2])) > NEWEST_CORE


def check_core() -> None:
    """Raise RunError if the installed ansible-core is newer than those that patches are for.

    A function may have the same signature there and do something else.
    """
    if is_newer_core():
        newest = ".".join(map(str, NEWEST_CORE))
        raise RunError(
            f"ansible-core {_installed()} is newer than {newest}, the newest version with warm"
            f" runs: update operator-runner, or install ansible-core {newest}"
        )


def _installed() -> str:
    return importlib.metadata.version("ansible-core")
