"""Start a cluster, step by step."""

from __future__ import annotations

import dataclasses
import ipaddress
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from operator_runner.devcluster import binaries, control_plane, files, ports, process, supervision
from operator_runner.devcluster.control_plane import LOOPBACK, Credentials, Endpoint
from operator_runner.devcluster.errors import ClusterError
from operator_runner.devcluster.health import Prober
from operator_runner.devcluster.locations import Home
from operator_runner.devcluster.state import State, save

# Services get addresses even where no node routes them.
_UNROUTED_SERVICES = ipaddress.IPv4Network("10.185.0.0/24")


@dataclass(frozen=True, slots=True)
class Plan:
    """What `cluster up` was asked for."""

    name: str
    home: Home
    environment: Mapping[str, str]
    console: Console
    full: bool
    port: int | None
    install_packages: bool

    def say(self, text: str) -> None:
        """Tell the user about a step."""
        self.console.print(text)


def start(plan: Plan) -> None:
    """Start a cluster of which nothing is there yet; return when it is ready."""
    begin = time.monotonic()
    programs = binaries.find(binaries.CONTROL_PLANE, plan.environment, plan.console)
    _make_folders(plan.home)
    plan.say("Starting etcd, kube-apiserver and kube-controller-manager")
    port = ports.require(LOOPBACK, plan.port) if plan.port else ports.free(LOOPBACK, 1)[0]
    endpoint = Endpoint(LOOPBACK, port, _UNROUTED_SERVICES, node=None)
    credentials = control_plane.issue(plan.home, endpoint, plan.name)
    state = save(plan.home, State(process.boot(), endpoint.url, slot=None))
    state = _start_api(plan, state, programs, endpoint, credentials)
    manager = control_plane.controller_manager(programs, plan.home, credentials)
    state = supervision.start(plan.home, state, manager)
    _finish(plan, state, begin)


def resume(plan: Plan, state: State) -> None:
    """Check a cluster that was up; start those of its parts that are not running any more."""
    if plan.full != (state.slot is not None):
        kind = "with a node" if state.slot is not None else "without a node"
        raise ClusterError(
            f"the cluster {plan.name!r} is up already, but {kind}",
            cure=f"Take it down first: `operator-runner cluster down --name {plan.name}`.",
        )
    for part in state.parts:
        running = state.processes.get(part.name)
        if running is None or not process.alive(running):
            plan.say(f"Starting {part.name}, which was not running")
            state = supervision.start(plan.home, state, part)
    supervision.wait_until_well(plan.home, state)
    plan.say(f"The cluster {plan.name!r} is up")


def _start_api(
    plan: Plan, state: State, programs: Path, endpoint: Endpoint, credentials: Credentials
) -> State:
    etcd, etcd_url = control_plane.etcd(programs, plan.home, credentials)
    state = supervision.start(plan.home, state, etcd)
    supervision.wait_until_well(plan.home, state, etcd.name)
    server = control_plane.api_server(programs, endpoint, credentials, etcd_url)
    state = supervision.start(plan.home, state, server)
    _write_kubectl(plan.home, programs)
    supervision.wait_until_well(plan.home, state, server.name)
    return state


def _finish(plan: Plan, state: State, begin: float) -> None:
    prober = Prober(plan.home)
    account = f"{state.server}/api/v1/namespaces/default/serviceaccounts/default"
    # The controller manager makes it; Pods are refused before.
    supervision.wait_until(
        plan.home,
        state,
        lambda: prober.object_at(account) is not None,
        "the default service account",
    )
    supervision.wait_until_well(plan.home, state)
    save(plan.home, dataclasses.replace(state, ready=True))
    plan.say(f"The cluster {plan.name!r} is up after {time.monotonic() - begin:.1f} s")


def _make_folders(home: Home) -> None:
    for folder in (home.path, home.pki, home.logs, home.bin, home.etcd):
        files.private_folder(folder)
    for log in home.logs.iterdir():
        log.unlink()


def _write_kubectl(home: Home, programs: Path) -> None:
    """Write a `kubectl` that needs neither PATH nor KUBECONFIG to be set."""
    script = (
        "#!/bin/sh\n"
        f"KUBECONFIG={shlex.quote(str(home.kubeconfig))}\n"
        "export KUBECONFIG\n"
        f'exec {shlex.quote(str(programs / "kubectl"))} "$@"\n'
    )
    files.write(home.bin / "kubectl", script, mode=0o700)
