"""What a soak does to an operator beside ordinary work: kills, and an API server that hangs."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time

import psutil

from bench.environment import Site, wait_until
from operator_runner.devcluster import Cluster

_STALL = 3.0
"""Seconds for which the API server answers nobody."""
_LENGTH = 0.5
_APPEAR = 3.0
"""Seconds to wait for a run that can be killed."""
_VANISH = 30.0
"""Seconds for runs and fork server to follow an operator that was killed."""


class Faults:
    """Faults of one site. Each method tells whether there was something to harm."""

    def __init__(self, site: Site, cluster: Cluster, chance: random.Random) -> None:
        """`chance` chooses among the processes of a run."""
        self._site, self._cluster, self._chance = site, cluster, chance

    def kill_run(self) -> bool:
        """Kill a process of a run: its supervisor, the play, or a module."""
        # Anywhere in the run, not at its very beginning each time.
        time.sleep(self._chance.uniform(0, _LENGTH))
        deadline = time.monotonic() + _APPEAR
        while time.monotonic() < deadline:
            with contextlib.suppress(psutil.NoSuchProcess):
                trees = [[run, *run.children(recursive=True)] for run in self._site.runs()]
                if trees:
                    self._chance.choice(self._chance.choice(trees)).kill()
                    return True
        return False

    def kill_fork_server(self) -> bool:
        """Kill the fork server, runs or not."""
        servers = self._site.fork_servers()
        for server in servers:
            server.kill()
        return bool(servers)

    def kill_operator(self) -> bool:
        """Kill the operator, see that nothing of it stays, and start it again."""
        self._site.operator.kill()
        wait_until(lambda: not self._site.processes(), "all processes are gone", _VANISH, every=0.1)
        self._site.start()
        return True

    def stall_api(self) -> bool:
        """Stop the API server for a moment, as a network does it."""
        pids = [part.pid for part in self._cluster.status() if part.name == "kube-apiserver"]
        for pid in filter(None, pids):
            os.kill(pid, signal.SIGSTOP)
            try:
                time.sleep(_STALL)
            finally:
                os.kill(pid, signal.SIGCONT)
        return True
