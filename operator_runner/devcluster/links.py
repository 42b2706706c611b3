"""The pair of links between this machine and a node, and the routes over it."""

from __future__ import annotations

from pathlib import Path

from operator_runner.devcluster.tools import run


def name_of(token: str) -> str:
    """Return the name of this machine's end of the link; interface names have 15 letters."""
    return f"opr-{token}"


def exists(token: str) -> bool:
    """Tell whether the link of the cluster with this token is there."""
    return Path("/sys/class/net", name_of(token)).exists()


def remove(token: str) -> None:
    """Remove the link, and with it its routes."""
    if exists(token):
        run("ip", "link", "delete", name_of(token))
