"""Start parts, wait until they are healthy, and report failures."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from operator_runner.devcluster import namespaces, process
from operator_runner.devcluster.errors import NotReady, NotRunning, PartDied
from operator_runner.devcluster.health import Prober
from operator_runner.devcluster.locations import Home
from operator_runner.devcluster.process import Process
from operator_runner.devcluster.state import ClusterState, Part, save

_POLL_SECONDS = 0.05
_LOG_LINES = 15


@dataclass(frozen=True, slots=True)
class PartStatus:
    """Status of a part of the cluster."""

    name: str
    pid: int | None
    """Process id on this machine, or None if it does not run."""
    problem: str | None
    """None if the part is well, else what is wrong in a few words."""
    log: Path


def start(home: Home, state: ClusterState, part: Part) -> ClusterState:
    """Start `part`, record it, and return the new state."""
    log = home.log_of(part.name)
    if part.node:
        node = state.node(part.node)
        if node is None or not namespaces.exist(node):
            raise NotRunning(
                f"the node that {part.name} belongs to does not run",
                hint="`operator-runner cluster down`, then `cluster up`, makes a new one.",
            )
        started = namespaces.start(node, part.command, mark=home.path, log=log)
    else:
        started = process.start(part.command, mark=home.path, log=log)
    return save(home, state.with_process(part, started))


def statuses(home: Home, state: ClusterState) -> tuple[PartStatus, ...]:
    """Return the status of every part."""
    prober = Prober(home)
    return tuple(_status(home, state, part, prober) for part in state.parts)


def wait_until_healthy(home: Home, state: ClusterState, *names: str, seconds: float = 120) -> None:
    """Return when the parts `names` (all parts if none is named) are well."""
    prober = Prober(home)
    for part in state.parts:
        if names and part.name not in names:
            continue

        def well(part: Part = part) -> bool:
            return prober.problem(part.health) is None

        wait_until(home, state, well, f"{part.name} to answer", seconds=seconds)


def wait_until(
    home: Home, state: ClusterState, done: Callable[[], bool], what: str, *, seconds: float = 120
) -> None:
    """Poll `done`; raise PartDied if a part ends meanwhile, NotReady after `seconds`."""
    deadline = time.monotonic() + seconds
    while not done():
        for name, running in state.processes.items():
            if not process.alive(running):
                raise part_died_error(home, name)
        if time.monotonic() > deadline:
            raise NotReady(
                f"timed out after {seconds:.0f} s waiting for {what}",
                hint=f"See the log files in {home.logs}.",
            )
        time.sleep(_POLL_SECONDS)


def part_died_error(home: Home, name: str) -> PartDied:
    """Return the error for a part that ended by itself, with the end of its log."""
    log = home.log_of(name)
    lines = log.read_text(errors="replace").splitlines()[-_LOG_LINES:] if log.exists() else []
    ending = "".join(f"\n  {line[:300]}" for line in lines)
    return PartDied(
        f"{name} ended by itself; the last lines of {log}:{ending or ' (empty)'}",
        hint="See the log file for earlier lines.",
    )


def _status(home: Home, state: ClusterState, part: Part, prober: Prober) -> PartStatus:
    log = home.log_of(part.name)
    running: Process | None = state.processes.get(part.name)
    if running is None:
        return PartStatus(part.name, None, "stopped", log)
    if not process.alive(running):
        return PartStatus(part.name, None, "ended by itself", log)
    return PartStatus(part.name, running.pid, prober.problem(part.health), log)
