"""Start parts of a cluster, wait until they are healthy, and report failures.

The state is stored in the home of the cluster for later commands. A node is a set of namespaces
(network, mounts, processes, IPC and host name) that exist as long as their first process
(`node_init.py`). When that is killed the kernel ends every process in them, and with the last
process go mounts, links and firewall rules.
"""

from __future__ import annotations

import dataclasses
import http.client
import json
import socket
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from operator_runner.devcluster import locations, process
from operator_runner.devcluster.errors import ClusterError, NotReady, NotRunning, PartDied
from operator_runner.devcluster.locations import Home
from operator_runner.devcluster.process import Process


@dataclass(frozen=True, slots=True)
class Part:
    """One program of the cluster: its command line and its health check."""

    name: str
    command: tuple[str, ...]
    health: str
    """Address that answers when the part is well: `http://`, `https://`, `unix:` or `tcp:`."""
    node: int = 0
    """Number of the node in whose namespaces it runs, from 1; 0 for the machine's own."""


@dataclass(frozen=True, slots=True)
class Node:
    """The processes that hold the node's namespaces open."""

    holder: Process
    """`unshare`; when it ends, the kernel ends `init`."""
    init: Process
    """The first process of the node; when it ends, the kernel ends everything in the node."""


@dataclass(frozen=True, slots=True)
class ClusterState:
    """A started cluster."""

    boot: str
    """Boot id of the machine: processes of another boot are gone."""
    server: str
    """URL of the API server."""
    slot: int | None
    """The slot of its subnets; None for a control plane without a node."""
    nodes: tuple[Node, ...] = ()
    parts: tuple[Part, ...] = ()
    processes: dict[str, Process] = field(default_factory=dict)
    """The running process of each part; stopped parts are missing."""
    ready: bool = False
    """Whether it has been up completely; a start that was cut short leaves False."""

    def node(self, number: int) -> Node | None:
        """Return the node with this number, counted from 1, or None."""
        return self.nodes[number - 1] if 0 < number <= len(self.nodes) else None

    def with_process(self, part: Part, started: Process) -> ClusterState:
        """Return the state after `part` was started as `started`."""
        others = tuple(other for other in self.parts if other.name != part.name)
        known = self.parts if part in self.parts else (*others, part)
        return dataclasses.replace(
            self, parts=known, processes={**self.processes, part.name: started}
        )

    def runs(self, part: str) -> bool:
        """Return whether the process of a part runs."""
        running = self.processes.get(part)
        return running is not None and process.alive(running)

    def part(self, name: str) -> Part | None:
        """Return the part `name`, or None."""
        return next((part for part in self.parts if part.name == name), None)


def save_state(home: Home, state: ClusterState) -> ClusterState:
    """Store `state` in one step; return it."""
    locations.write_file(home.state, json.dumps(dataclasses.asdict(state), indent=1))
    return state


def load_state(home: Home) -> ClusterState | None:
    """Return the stored state, or None if it does not exist or cannot be read.

    None is also returned for a file of another version, or one cut short by a full disk: processes
    are then still found by their mark (see `process.of_cluster`).
    """
    try:
        return _decoded(json.loads(home.state.read_text()))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _decoded(data: dict[str, Any]) -> ClusterState:
    nodes = [(Process(**node["holder"]), Process(**node["init"])) for node in data["nodes"]]
    return ClusterState(
        boot=data["boot"],
        server=data["server"],
        slot=data["slot"],
        nodes=tuple(Node(holder, init) for holder, init in nodes),
        parts=tuple(Part(**{**part, "command": tuple(part["command"])}) for part in data["parts"]),
        processes={name: Process(**process) for name, process in data["processes"].items()},
        ready=data["ready"],
    )


ESTABLISHED = '--for=jsonpath={.status.conditions[?(@.type=="Established")].status}=True'
"""Argument of `kubectl wait` for new CRDs: `--for=condition` fails without conditions."""
_TIMEOUT_SECONDS = 5.0


class Prober:
    """Asks with the cluster's own certificates, so that only its own parts can answer."""

    def __init__(self, home: Home) -> None:
        """Load the administrator's certificate from the cluster's home."""
        context = ssl.create_default_context(cafile=str(home.pki / "ca.crt"))
        context.load_cert_chain(home.pki / "admin.crt", home.pki / "admin.key")
        self._opener = urllib.request.build_opener(
            # No proxy of the user's environment may come between.
            urllib.request.ProxyHandler({}),
            urllib.request.HTTPSHandler(context=context),
        )

    def problem(self, address: str) -> str | None:
        """Return None if the part at `address` is well, else what is wrong in a few words."""
        if address.startswith("unix:"):
            return _problem(socket.AF_UNIX, address.removeprefix("unix:"))
        if address.startswith("tcp:"):
            host, _, port = address.removeprefix("tcp:").rpartition(":")
            return _problem(socket.AF_INET, (host, int(port)))
        return self._answer(address)[1]

    def object_at(self, url: str) -> dict[str, Any] | None:
        """Return the API object at `url`, or None if the server does not give it (yet)."""
        body, problem = self._answer(url)
        if problem is not None:
            return None
        loaded: dict[str, Any] = json.loads(body)
        return loaded

    def _answer(self, url: str) -> tuple[bytes, str | None]:
        try:
            with self._opener.open(url, timeout=_TIMEOUT_SECONDS) as response:
                return response.read(), None
        except urllib.error.HTTPError as error:
            with error:
                return b"", f"answers {error.code}"
        except urllib.error.URLError as error:
            return b"", f"no answer: {error.reason}"
        except (OSError, http.client.HTTPException) as error:
            return b"", f"no answer: {error}"


def _problem(family: socket.AddressFamily, address: str | tuple[str, int]) -> str | None:
    with socket.socket(family) as client:
        client.settimeout(_TIMEOUT_SECONDS)
        try:
            client.connect(address)
        except OSError as error:
            return f"no answer: {error.strerror or error}"
    return None


_CHILD_POLL_SECONDS = 0.01
_INIT = Path(__file__).with_name("node_init.py")
_FLAGS = ("--net", "--mount", "--pid", "--ipc", "--uts")


def create_node(*arguments: str, mark: Path, log: Path) -> Node:
    """Start a node's first process with `arguments`; return when the namespaces exist."""
    # -I and -S: the program needs nothing but the standard library, and starts faster so.
    init = (sys.executable, "-I", "-S", str(_INIT), *arguments)
    command = ("unshare", *_FLAGS, "--fork", "--kill-child", "--", *init)
    holder = process.start(command, mark=mark, log=log)
    return Node(holder, _first_child(holder, "unshare", log))


def node_exists(node: Node) -> bool:
    """Return whether programs can be started inside.

    A first process that is ending has left its namespaces before the others in them end.
    """
    return process.alive(node.init) and Path(f"/proc/{node.init.pid}/ns/net").exists()


def start_in_node(node: Node, command: Sequence[str], *, mark: Path, log: Path) -> Process:
    """Start `command` inside; return its process as this machine numbers it."""
    outer = process.start((*entering(node), *command), mark=mark, log=log)
    return _first_child(outer, command[0], log)


def entering(node: Node, *, folder: str | None = None) -> tuple[str, ...]:
    """Return the start of a command line that runs the rest of it inside.

    With `folder` the program starts there, if the node can access the folder.
    """
    place = () if folder is None else (f"--wdns={folder}",)
    return ("nsenter", f"--target={node.init.pid}", *_FLAGS, *place, "--")


def _first_child(parent: Process, name: str, log: Path) -> Process:
    # unshare and nsenter make exactly one child, and wait for it.
    deadline = time.monotonic() + 10
    while (child := process.child_of(parent)) is None:
        if not process.alive(parent):
            ending = log.read_text(errors="replace").strip().splitlines()[-5:]
            raise PartDied(f"{name} could not be started in the node: {' / '.join(ending)}")
        if time.monotonic() > deadline:
            raise ClusterError(f"{name} does not start in the node; see {log}")
        time.sleep(_CHILD_POLL_SECONDS)
    return child


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
        if node is None or not node_exists(node):
            raise NotRunning(
                f"the node that {part.name} belongs to does not run",
                hint="`operator-runner cluster down`, then `cluster up`, makes a new one.",
            )
        started = start_in_node(node, part.command, mark=home.path, log=log)
    else:
        started = process.start(part.command, mark=home.path, log=log)
    return save_state(home, state.with_process(part, started))


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
    if state.runs(part.name):
        pid = state.processes[part.name].pid
        return PartStatus(part.name, pid, prober.problem(part.health), log)
    problem = "ended by itself" if part.name in state.processes else "stopped"
    return PartStatus(part.name, None, problem, log)
