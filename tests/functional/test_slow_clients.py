"""Clients that hold connections and never end a request, while the operator has few descriptors."""

from __future__ import annotations

import selectors
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from tests.functional.test_operator import KIND, echo, wait_for_text
from tests.support.kubectl import Kubectl
from tests.support.operator import Operator, free_port
from tests.support.waiting import eventually

DESCRIPTORS = 256
CLIENTS = 80
"""Connections to each port: more than all descriptors together."""
SENT = (b"", b"GET / HTTP/1.1\r\nX-Slow: ", b"\x16\x03\x01", b"POST /metrics HTTP/1.1\r\n")


@contextmanager
def slow_clients(port: int) -> Iterator[None]:
    """Hold connections to a port, and replace those that the server closes."""
    stop = threading.Event()
    holding = threading.Thread(target=_hold, args=(port, stop))
    holding.start()
    try:
        yield
    finally:
        stop.set()
        holding.join()


def _hold(port: int, stop: threading.Event) -> None:
    with selectors.DefaultSelector() as clients:
        opened = 0
        while not stop.is_set():
            while len(clients.get_map()) < CLIENTS and not stop.is_set():
                clients.register(_open(port, SENT[opened % len(SENT)]), selectors.EVENT_READ)
                opened += 1
            for key, _ in clients.select(timeout=0.1):
                client = key.fileobj
                assert isinstance(client, socket.socket)
                with suppress(OSError):
                    if client.recv(4096):
                        continue
                clients.unregister(client)
                client.close()
                time.sleep(0.005)  # several hundred a second, not as many as there can be
        for key in list(clients.get_map().values()):
            clients.unregister(key.fileobj)
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()


def _open(port: int, sent: bytes) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=60)
    with suppress(OSError):
        client.sendall(sent)
    return client


def test_slow_clients_do_not_delay_resources_and_probes(
    control_plane: Path, kubectl: Kubectl, project: Path, tmp_path: Path
) -> None:
    """Resources are reconciled and probes respond while clients try to use all descriptors.

    The log names each port once.
    """
    program = tmp_path / "operator-runner"
    installed = Path(sys.executable).parent / "operator-runner"
    program.write_text(f'#!/bin/sh\nulimit -n {DESCRIPTORS}\nexec "{installed}" "$@"\n')
    program.chmod(0o755)
    scratch = tmp_path / "operator"
    scratch.mkdir()
    operator = Operator(project, control_plane, kubectl.namespace, scratch, {}, program=program)
    ports = {name: free_port() for name in ("metrics", "probes", "roles", "proxy")}
    try:
        operator.start(
            f"--metrics-bind-address=127.0.0.1:{ports['metrics']}",
            f"--user-metrics-bind-address=127.0.0.1:{ports['roles']}",
            f"--proxy-port={ports['proxy']}",
        )
        probes = int(operator.probe_address.rpartition(":")[2])
        attacked = {ports["metrics"], ports["roles"], ports["proxy"], probes}
        kubectl.apply(echo())
        wait_for_text(kubectl, operator, "hello nothing")
        with _all_slow(attacked):
            eventually(
                lambda: {line["port"] for line in operator.lines("Too many open connections")},
                lambda warned: warned == attacked,
                details=operator.log,
            )
            for number in range(3):
                kubectl.merge(KIND, "a", {"spec": {"sayThis": f"again {number}"}})
                wait_for_text(kubectl, operator, f"hello again {number}")
                # The connection of a probe may be the one that is closed for others, before the
                # request arrives: kubelets take several failures in a row for one.
                for name in ("healthz", "readyz"):
                    eventually(partial(operator.probe, name), (200).__eq__, details=operator.log)
        assert len(operator.lines("Too many open connections")) == len(attacked)
        assert operator.terminate() == 0
    finally:
        operator.kill()
        sys.stdout.write(operator.log())


@contextmanager
def _all_slow(ports: set[int]) -> Iterator[None]:
    """Hold connections to all of the ports."""
    if not ports:
        yield
        return
    first, *rest = sorted(ports)
    with slow_clients(first), _all_slow(set(rest)):
        yield
