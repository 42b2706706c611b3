"""The node's namespaces: network, mounts, processes, IPC and host name.

They exist as long as their first process (`node_init.py`). When that is killed the kernel ends
every process in them, and with the last process go mounts, links and firewall rules.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from operator_runner.devcluster import process
from operator_runner.devcluster.errors import ClusterError, PartDied
from operator_runner.devcluster.process import Process
from operator_runner.devcluster.state import Node

_POLL_SECONDS = 0.01
_INIT = Path(__file__).with_name("node_init.py")
_FLAGS = ("--net", "--mount", "--pid", "--ipc", "--uts")


def create(*arguments: str, mark: Path, log: Path) -> Node:
    """Start a node's first process with `arguments`; return when the namespaces exist."""
    # -I and -S: the program needs nothing but the standard library, and starts faster so.
    init = (sys.executable, "-I", "-S", str(_INIT), *arguments)
    command = ("unshare", *_FLAGS, "--fork", "--kill-child", "--", *init)
    holder = process.start(command, mark=mark, log=log)
    return Node(holder, _first_child(holder, "unshare", log))


def exist(node: Node) -> bool:
    """Return whether programs can be started inside.

    A first process that is ending has left its namespaces before the others in them end.
    """
    return process.alive(node.init) and Path(f"/proc/{node.init.pid}/ns/net").exists()


def start(node: Node, command: Sequence[str], *, mark: Path, log: Path) -> Process:
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
        time.sleep(_POLL_SECONDS)
    return child
