"""Show what OLM does, as it does it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from http import HTTPStatus
from http.client import HTTPException
from typing import TypeVar

from rich.console import Console

from demo.errors import DemoError
from demo.fetch import fetch
from demo.olm_install import Installation
from demo.steady_client import SteadyClient

T = TypeVar("T")
_POLL_SECONDS = 0.2
_SECONDS = 180.0


def waiting(
    console: Console, what: str, look: Callable[[], T | None], trouble: Callable[[], str] = str
) -> T:
    """Return the result of `look` as soon as it is not None; show `what` meanwhile.

    Raises DemoError with the text of `trouble` after three minutes.
    """
    deadline = time.monotonic() + _SECONDS
    with console.status(what):
        while (found := look()) is None:
            if time.monotonic() > deadline:
                raise DemoError(f"{what}: not within {_SECONDS:.0f} s\n{trouble()}")
            time.sleep(_POLL_SECONDS)
    return found


def approve(console: Console, installation: Installation, version: str) -> None:
    """Wait until OLM proposes a version, and approve that."""
    plan = waiting(
        console,
        f"OLM resolves {version}",
        lambda: installation.plan(version),
        installation.trouble,
    )
    _print(console, f"OLM proposes {version} by the InstallPlan {plan}; approving it:")
    approved = json.dumps({"spec": {"approved": True}})
    where = f"-n {installation.namespace} --type=merge"
    command = f"kubectl patch installplan {plan} {where} --patch='{approved}'"
    console.print(f"    {command}", style="dim", markup=False, soft_wrap=True)
    installation.approve(plan)


def follow(
    console: Console,
    installation: Installation,
    version: str,
    client: SteadyClient | None = None,
) -> None:
    """Print the phases of ClusterServiceVersions until only `version` is left and has succeeded."""
    begin, deadline = time.monotonic(), time.monotonic() + _SECONDS
    printed: dict[str, str] = {}
    with console.status("") as status:
        while set(printed) != {version} or not printed[version].startswith("Succeeded"):
            if time.monotonic() > deadline:
                raise DemoError(f"{version} is not installed\n{installation.trouble()}")
            status.update(_counted(client))
            phases = {name: str(phase) for name, phase in installation.phases().items()}
            for name, phase in phases.items():
                if printed.get(name) != phase:
                    seconds = time.monotonic() - begin
                    _print(console, f"{seconds:5.1f} s  {name}: {phase}")
            for name in printed.keys() - phases.keys():
                _print(console, f"{time.monotonic() - begin:5.1f} s  {name}: deleted")
            printed = phases
            if any(phase.startswith("Failed") for phase in phases.values()):
                raise DemoError(f"OLM stopped the installation\n{installation.trouble()}")
            time.sleep(_POLL_SECONDS)


def page(console: Console, url: str) -> None:
    """Wait until nginx answers."""

    def look() -> bool | None:
        try:
            return True if fetch(url).status == HTTPStatus.OK else None
        except (OSError, HTTPException):
            return None

    waiting(console, f"nginx answers on {url}", look)
    console.print(f"HTTP 200 from nginx on {url}")


def _print(console: Console, line: str) -> None:
    console.print(line, markup=False, soft_wrap=True)


def _counted(client: SteadyClient | None) -> str:
    if client is None:
        return "OLM works"
    return f"nginx meanwhile: {client.fetched} requests answered, {len(client.failures)} failed"
