"""The operator of the demo: a process that continues when `make demo` has ended."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path

import psutil

from demo import record
from demo.errors import DemoError, TimedOut
from demo.fetch import fetch
from demo.kubectl import wait_for
from demo.record import Process

_READY_SECONDS = 180.0
_STOP_SECONDS = 40.0  # the operator gives running plays 30 s


@dataclass(frozen=True, slots=True)
class Ports:
    """Free ports of loopback, so that several demos run side by side."""

    metrics: int
    probes: int

    @classmethod
    def free(cls) -> Ports:
        """Bind two free ports; both stay bound until both are known, so they differ."""
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        ports = [one.getsockname()[1] for one in sockets]
        for one in sockets:
            one.close()
        return cls(*ports)


def start(kubeconfig: str | None, image: str | None, ports: Ports) -> Process:
    """Start the operator on a log file of its own; it survives this process."""
    record.FOLDER.mkdir(mode=0o700, exist_ok=True)
    command = [
        *(str(Path(sys.executable).with_name("operator-runner")), "run"),
        *("--watches-file", "watches.yaml", "--work-dir", str(record.WORK_DIR), "--reload"),
        f"--metrics-bind-address=127.0.0.1:{ports.metrics}",
        f"--health-probe-bind-address=127.0.0.1:{ports.probes}",
        # Any free ports.
        *("--user-metrics-bind-address=127.0.0.1:0", "--proxy-port=0", "--webhook-port=0"),
        "--zap-encoder=console",
    ]
    with record.LOG.open("w") as log:
        started = subprocess.Popen(
            command,
            cwd=record.ROOT,
            env=_environment(os.environ, kubeconfig, image),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return Process(started.pid, psutil.Process(started.pid).create_time())


def wait_until_ready(process: Process, ports: Ports) -> None:
    """Wait until /readyz returns ok; raise DemoError if the operator ends or stays unready."""
    url = f"http://127.0.0.1:{ports.probes}/readyz"
    last = "no answer"

    def ready() -> bool | None:
        nonlocal last
        if find(process) is None:
            ending = "\n".join(record.LOG.read_text(errors="replace").splitlines()[-8:])
            raise DemoError(f"The operator has ended:\n{ending}", log=record.LOG)
        try:
            answer = fetch(url)
        except (OSError, HTTPException) as error:
            last = str(error)
            return None
        last = answer.body
        return True if answer.status == HTTPStatus.OK else None

    try:
        wait_for("The operator becomes ready", ready, _READY_SECONDS)
    except TimedOut as error:
        raise DemoError(f"{error.problem}; {url} returns:\n{last}", log=record.LOG) from None


def find(process: Process) -> psutil.Process | None:
    """Return the process if it still runs; None for another one that got the same id."""
    try:
        found = psutil.Process(process.pid)
        alive = found.status() != psutil.STATUS_ZOMBIE
        return found if alive and found.create_time() == process.started else None
    except psutil.NoSuchProcess:
        return None


def stop(process: Process) -> None:
    """Stop the operator after its running plays. Processes that are left are killed."""
    found = find(process)
    if found is None:
        return
    family = [found, *found.children(recursive=True)]
    found.terminate()
    with contextlib.suppress(psutil.TimeoutExpired):
        found.wait(_STOP_SECONDS)
    _, left = psutil.wait_procs(family, timeout=2)
    for one in left:
        one.kill()
    psutil.wait_procs(left, timeout=5)


def _environment(
    ours: Mapping[str, str], kubeconfig: str | None, image: str | None
) -> dict[str, str]:
    # make's own variables would reach every play.
    environment = {k: v for k, v in ours.items() if k not in {"MAKEFLAGS", "MAKELEVEL", "MFLAGS"}}
    if kubeconfig is not None:
        environment["KUBECONFIG"] = kubeconfig
    if image is not None:
        environment["RELATED_IMAGE_NGINX"] = image
    return environment
