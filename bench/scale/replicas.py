"""Replicas as processes, each with an account and a connection that can be cut."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import yaml

from bench.errors import BenchError
from tests.support.audit_log import make_replica
from tests.support.kubectl import Kubectl
from tests.support.operator import Operator
from tests.support.relay import Relay

LEASE_SECONDS = 10
FLAGS = (
    "--shards=auto",
    "--leader-elect",
    "--leader-election-id=echo",
    f"--leader-elect-lease-duration={LEASE_SECONDS}s",
    "--leader-elect-renew-deadline=6s",
    "--graceful-shutdown-timeout=10s",
)


class Network:
    """An event loop in a thread, which moves the bytes of all relays."""

    def __init__(self) -> None:
        """Start the thread; `stop` ends it."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._relays: list[Relay] = []

    def relay(self, kubeconfig: Path) -> Relay:
        """Put a relay between a kubeconfig, which is changed, and its API server."""
        config = yaml.safe_load(kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        server = urlsplit(cluster["server"])
        relay = Relay(server.hostname or "", server.port or 443)
        asyncio.run_coroutine_threadsafe(relay.start(), self._loop).result()
        self._relays.append(relay)
        cluster["server"] = f"https://127.0.0.1:{relay.port}"
        kubeconfig.write_text(yaml.safe_dump(config))
        return relay

    def cut(self, relay: Relay) -> None:
        """Hold back all bytes."""
        self._loop.call_soon_threadsafe(relay.freeze)

    def join(self, relay: Relay) -> None:
        """Move bytes again, those that were held back first."""
        self._loop.call_soon_threadsafe(relay.thaw)

    def stop(self) -> None:
        """Close all connections and end the thread."""
        for relay in self._relays:
            asyncio.run_coroutine_threadsafe(relay.stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@dataclass
class Replica:
    """One replica. A process that has ended is started again, as a kubelet would."""

    name: str
    operator: Operator
    network: Network
    relay: Relay
    flags: tuple[str, ...]
    _frozen: list[psutil.Process] = field(default_factory=list)

    def start(self) -> None:
        """Start a process, without waiting for it."""
        self.operator.start(*self.flags, wait=False)

    def restart_if_ended(self) -> bool:
        """Return whether the process had ended."""
        with suppress(subprocess.TimeoutExpired):
            self.operator.wait(0)
            self.start()
            return True
        return False

    def is_ready(self) -> bool:
        """Return whether the process watches its resources."""
        return self.operator.probe("readyz") == 200  # noqa: PLR2004 (HTTP)

    def kill(self) -> None:
        """End the process without warning, and start another one."""
        self.operator.kill()
        self.start()

    def terminate(self) -> None:
        """Send SIGTERM to the process."""
        os.kill(self.operator.pid, signal.SIGTERM)

    def stop(self) -> None:
        """End the process as the deletion of its Pod does, and wait for its end."""
        if status := self.operator.terminate():
            raise BenchError(f"{self.name} ended with exit status {status} after SIGTERM")

    def freeze(self, *, runs: bool) -> None:
        """Stop the process until `thaw`; with `runs` its runs too."""
        process = psutil.Process(self.operator.pid)
        self._frozen = [process, *(process.children(recursive=True) if runs else ())]
        for each in self._frozen:
            with suppress(psutil.NoSuchProcess):
                each.suspend()

    def cut(self) -> None:
        """Cut the network to the API server until `thaw`."""
        self.network.cut(self.relay)

    def thaw(self) -> None:
        """End `freeze` and `cut`."""
        self.network.join(self.relay)
        for each in self._frozen:
            with suppress(psutil.NoSuchProcess):
                each.resume()
        self._frozen = []

    def member(self) -> str:
        """Return the identity of the present process as a member, empty before it joins."""
        lines = self.operator.lines("Joined the shards", "Starting")
        return str(lines[-1].get("identity", "")) if lines else ""

    def removals(self) -> dict[str, datetime]:
        """Return when this replica removed which members, by their identity."""
        lines = self.operator.lines("Removed a member that did not renew its lease")
        return {line["member"]: datetime.fromisoformat(line["ts"]) for line in lines}


@contextmanager
def running(
    kubectl: Kubectl,
    project: Path,
    scratch: Path,
    count: int,
    flags: tuple[str, ...],
    *,
    prefix: str = "replica",
    started: bool = True,
) -> Iterator[list[Replica]]:
    """Give replicas that have been started unless `started` is False; they are killed in the end.

    `prefix` begins their names, which are unique in a namespace.
    """
    network = Network()
    replicas: list[Replica] = []
    try:
        for number in range(count):
            name = f"{prefix}-{number}"
            operator = make_replica(kubectl, project, scratch, name)
            relay = network.relay(scratch / f"{name}.kubeconfig")
            replicas.append(Replica(name, operator, network, relay, flags))
            if started:
                replicas[-1].start()
        yield replicas
    finally:
        for replica in replicas:
            replica.operator.kill()
        network.stop()
