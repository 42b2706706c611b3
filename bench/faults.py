"""Inject faults into an operator: kills, and a stalled API server."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time

import psutil

from bench.environment import Site, wait_until
from operator_runner.devcluster import Cluster

_STALL_SECONDS = 3.0
"""Time for which the API server is stopped."""
_MAX_DELAY_SECONDS = 0.5
_FIND_SECONDS = 3.0
"""Time to find a run to kill."""
_EXIT_SECONDS = 30.0
"""Time for runs and fork server to exit after the operator was killed."""


class Faults:
    """Faults of one site. Each method returns whether it found a target."""

    def __init__(self, site: Site, cluster: Cluster, chance: random.Random) -> None:
        """`chance` chooses among the processes of a run."""
        self._site, self._cluster, self._chance = site, cluster, chance

    def kill_run(self) -> bool:
        """Kill a process of a run: its supervisor, the play, or a module."""
        # At a random time of the run.
        time.sleep(self._chance.uniform(0, _MAX_DELAY_SECONDS))
        deadline = time.monotonic() + _FIND_SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(psutil.NoSuchProcess):
                trees = [[run, *run.children(recursive=True)] for run in self._site.runs()]
                if trees:
                    self._chance.choice(self._chance.choice(trees)).kill()
                    return True
        return False

    def kill_fork_server(self) -> bool:
        """Kill the fork server."""
        servers = self._site.fork_servers()
        for server in servers:
            server.kill()
        return bool(servers)

    def kill_operator(self) -> bool:
        """Kill the operator, wait until its processes have exited, and start it again."""
        self._site.operator.kill()
        wait_until(
            lambda: not self._site.processes(), "all processes have ended", _EXIT_SECONDS, every=0.1
        )
        self._site.start()
        return True

    def stall_api(self) -> bool:
        """Stop the API server for some seconds, as in a network partition."""
        stall_api_server(self._cluster)
        return True


def stall_api_server(cluster: Cluster) -> None:
    """Stop the API server for some seconds; connections stay open."""
    pids = [part.pid for part in cluster.status() if part.name == "kube-apiserver"]
    for pid in filter(None, pids):
        os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(_STALL_SECONDS)
        finally:
            os.kill(pid, signal.SIGCONT)
