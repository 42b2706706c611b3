"""List everything that a local cluster could leave on the machine."""

from __future__ import annotations

import contextlib
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Traces:
    """Processes, mounts, links, routes and cgroups of one cluster on this machine."""

    processes: frozenset[str]
    """Command lines of processes that name the cluster's folder, or have its mounts."""
    links: frozenset[str]
    routes: frozenset[str]
    mounts: frozenset[str]
    """Mounts of the cluster's folder, seen from any process."""
    cgroups: frozenset[str]
    firewall: frozenset[str]
    """Rules of this machine's own network namespace that Kubernetes could have made."""


def traces(folder: Path, token: str) -> Traces:
    """Look for a cluster whose files are in `folder` and whose names end in `token`."""
    processes, mounts = set(), set()
    for process in [entry for entry in _PROC.iterdir() if entry.name.isdigit()]:
        with contextlib.suppress(OSError):
            seen = (process / "mountinfo").read_text().splitlines()
            own = {line for line in seen if str(folder) in line}
            mounts |= own
            command = (
                (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            )
            environment = (process / "environ").read_bytes().decode(errors="replace")
            if own or str(folder) in command or f"={folder}\0" in environment:
                processes.add(f"{process.name} {command}")
    return Traces(
        processes=frozenset(processes),
        links=_lines("ip", "-oneline", "link", naming=token),
        routes=_lines("ip", "route", "show", "table", "all", naming=token),
        mounts=frozenset(mounts),
        cgroups=frozenset(_cgroups(token)),
        firewall=_lines("iptables-save", naming="KUBE-"),
    )


def _cgroups(token: str) -> list[str]:
    """Return the cgroups with a token in their names, while others come and go."""
    return [
        f"{parent}/{name}"
        for parent, names, _ in os.walk(_CGROUPS)
        for name in names
        if token in name
    ]


def _lines(*command: str, naming: str) -> frozenset[str]:
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return frozenset(line for line in shown.splitlines() if naming in line)
