"""State of a cluster, stored in its home for later commands."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any

from operator_runner.devcluster import files
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

    def with_process(self, part: Part, process: Process) -> ClusterState:
        """Return the state after `part` was started as `process`."""
        others = tuple(other for other in self.parts if other.name != part.name)
        known = self.parts if part in self.parts else (*others, part)
        return dataclasses.replace(
            self, parts=known, processes={**self.processes, part.name: process}
        )

    def with_processes(self, processes: dict[str, Process]) -> ClusterState:
        """Return the state with `processes` as those that run."""
        return dataclasses.replace(self, processes=processes)

    def part(self, name: str) -> Part | None:
        """Return the part `name`, or None."""
        return next((part for part in self.parts if part.name == name), None)


def save(home: Home, state: ClusterState) -> ClusterState:
    """Store `state` in one step; return it."""
    files.write(home.state, json.dumps(dataclasses.asdict(state), indent=1))
    return state


def load(home: Home) -> ClusterState | None:
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
