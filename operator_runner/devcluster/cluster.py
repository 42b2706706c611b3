"""A local Kubernetes cluster: the interface for commands, the demo and tests."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO

from rich.console import Console

from operator_runner.devcluster import (
    binaries,
    bringup,
    host,
    locations,
    network,
    process,
    supervision,
)
from operator_runner.devcluster.control_plane import ApiServerOptions
from operator_runner.devcluster.errors import ClusterError, NotRunning
from operator_runner.devcluster.locations import Home, home_of
from operator_runner.devcluster.node import load_image
from operator_runner.devcluster.olm import NAMESPACE, SOURCE, Olm
from operator_runner.devcluster.supervision import (
    ClusterState,
    Node,
    Part,
    PartStatus,
    load_state,
    save_state,
)

_SECONDS = 30


def clean(home: Home) -> None:
    """End every process of the cluster and remove its link, routes and cgroups.

    Nothing here relies on the stored state: processes are found by their mark, link and cgroups
    by names that are derived from the home. Files are kept: see `remove`.
    """
    deadline = time.monotonic() + _SECONDS
    # Once more after each round: a program may have been starting another one.
    while remaining := process.of_cluster(home.path):
        if time.monotonic() > deadline:
            pids = ", ".join(str(one.pid) for one in remaining)
            raise ClusterError(
                f"the processes {pids} of the cluster are started again after they are killed"
            )
        process.kill(remaining)
    network.remove_link(home.token)
    host.remove_cgroups(home.token)


def forget(home: Home) -> None:
    """Remove all files but the logs, so that the next start creates a new cluster."""
    for path in (home.state, home.kubeconfig):
        path.unlink(missing_ok=True)
    nodes = (home.node, *home.path.glob("node-*"))
    written = (home.etcd, home.volumes, home.catalogs.parent, *nodes)
    for folder in (home.bin, home.tools, home.kubectl_cache, home.pki, *written):
        if folder.exists():
            shutil.rmtree(folder)


def remove(home: Home) -> None:
    """Remove every file of the cluster."""
    if home.path.exists():
        shutil.rmtree(home.path)


# The API server would wait a minute for its clients to close their watches.
_STOP_GRACE_SECONDS = 2.0


class Cluster:
    """One cluster by its name; clusters of different names do not disturb each other."""

    def __init__(
        self,
        name: str = "default",
        *,
        environment: Mapping[str, str] | None = None,
        console: Console | None = None,
    ) -> None:
        """Name a cluster, which need not exist.

        `environment` (by default that of the process) has XDG_CACHE_HOME, XDG_STATE_HOME and
        KUBEBUILDER_ASSETS. Steps are printed on `console`, by default standard error.
        """
        self.name = name
        self._environment = os.environ if environment is None else environment
        self._console = console or Console(stderr=True, highlight=False)
        self.home = home_of(name, self._environment)
        """The folder of the cluster, and where in it everything is."""
        self.kubeconfig = self.home.kubeconfig
        """Kubeconfig of the administrator; exists while the cluster is up."""
        self.bin = self.home.bin
        """Folder with a `kubectl` that talks to this cluster."""
        self._lock_file = self.home.path.with_name(f".{name}.lock")

    def up(
        self,
        *,
        control_plane_only: bool = False,
        port: int | None = None,
        install_packages: bool = False,
        admission_plugins: Sequence[str] = (),
        audit_policy: Path | None = None,
        nodes: int | None = None,
    ) -> None:
        """Start the cluster and return when it is ready; on a running one only check it.

        `control_plane_only` leaves out scheduler and node, and needs no root. `port` is the API
        server's (by default 6443 on an address of the cluster's own, or a free one of loopback).
        `install_packages` installs the packages of the node by apt-get. `admission_plugins` names
        plugins of the API server that are off by default, `audit_policy` is the file of its audit
        policy; both count when the cluster is new. The audit log is `audit.log` in the logs.
        `nodes` is the number of nodes, by default 1, or that of the running cluster.
        A start that is interrupted leaves nothing behind, one that fails only its logs.
        """
        options = bringup.StartOptions(
            name=self.name,
            home=self.home,
            environment=self._environment,
            console=self._console,
            full=not control_plane_only,
            port=port,
            install_packages=install_packages,
            api_server=ApiServerOptions(
                tuple(admission_plugins), None if audit_policy is None else audit_policy.absolute()
            ),
            nodes=nodes,
        )
        with self._locked():
            state = self._current()
            if state is not None:
                bringup.resume(options, state)
                return
            clean(self.home)
            forget(self.home)
            try:
                bringup.start(options)
            except KeyboardInterrupt:
                self._remove()
                raise
            except BaseException:
                clean(self.home)
                forget(self.home)
                raise

    def down(self) -> None:
        """Remove the cluster with all its data and files, if it exists."""
        if not self.home.path.parent.exists():
            return
        with self._locked():
            self._remove()

    def _remove(self) -> None:
        clean(self.home)
        remove(self.home)
        self._lock_file.unlink(missing_ok=True)

    def status(self) -> tuple[PartStatus, ...]:
        """Return the status of every part. Raises NotRunning if there is no cluster."""
        return supervision.statuses(self.home, self._running())

    def load(self, archive: Path) -> tuple[str, ...]:
        """Give every node the images of a docker or OCI archive; return their names."""
        self._node()
        names: tuple[str, ...] = ()
        for node in self._running().nodes:
            names = load_image(node, archive)
        return names

    def install_olm(self) -> None:
        """Install the Operator Lifecycle Manager and return when it works.

        Its programs are built the first time. On a cluster that has it, it is only checked.
        """
        with self._locked():
            begin = time.monotonic()
            olm = self._olm()
            self._console.print("Starting OLM: its CRDs, olm-operator and catalog-operator")
            olm.install()
            took = time.monotonic() - begin
            self._console.print(f"OLM is up on {self.name!r} after {took:.1f} s")

    def serve_catalog(self, name: str, folder: Path) -> str:
        """Let OLM install from the file-based catalog in `folder`; return its CatalogSource.

        The answer is `NAMESPACE/NAME`. Catalogs of other names are served beside it.
        """
        with self._locked():
            self._olm().serve(name, folder)
        return f"{NAMESPACE}/{SOURCE}"

    def _olm(self) -> Olm:
        self._node()
        programs = binaries.find_olm(self._environment, self._console)
        return Olm(self.home, programs, self._running())

    def command(self, command: Sequence[str]) -> tuple[list[str], dict[str, str]]:
        """Return argv and environment that run `command` in the first node of the cluster.

        For a control plane without a node it runs in the ordinary namespaces. Either way
        KUBECONFIG is set, and `kubectl` on PATH is the cluster's.
        """
        state = self._running()
        path = os.pathsep.join([str(self.home.tools), os.environ.get("PATH", os.defpath)])
        environment = {
            **os.environ,
            "KUBECONFIG": str(self.kubeconfig),
            "KUBECACHEDIR": str(self.home.kubectl_cache),
            "PATH": path,
            "CONTAINERD_NAMESPACE": "k8s.io",
        }
        enter = (
            () if state.slot is None else supervision.entering(self._node(), folder=str(Path.cwd()))
        )
        return [*enter, *command], environment

    def exec(self, command: Sequence[str], *, input_: str | None = None) -> str:
        """Run `command` as `command()` describes and return what it printed.

        Raises ClusterError with the program's error output if it fails.
        """
        argv, environment = self.command(command)
        done = subprocess.run(
            argv, env=environment, input=input_, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise ClusterError(
                f"{' '.join(command)} failed with exit code {done.returncode}: "
                f"{(done.stderr or done.stdout).strip()}"
            )
        return done.stdout

    def stop_part(self, name: str) -> None:
        """Kill one part, like a crash; `start_part` starts it again."""
        with self._locked():
            state = self._running()
            part = self._part(state, name)
            running = state.processes.get(part.name)
            if running is not None:
                process.end(running, grace=_STOP_GRACE_SECONDS)
            processes = {key: value for key, value in state.processes.items() if key != name}
            save_state(self.home, replace(state, processes=processes))

    def start_part(self, name: str) -> None:
        """Start a part that was stopped or died, and return when it is well."""
        with self._locked():
            state = self._running()
            part = self._part(state, name)
            if not state.runs(part.name):
                state = supervision.start(self.home, state, part)
            supervision.wait_until_healthy(self.home, state, part.name)

    def _current(self) -> ClusterState | None:
        """Return the state of a complete start of this boot whose node, if any, still runs."""
        state = load_state(self.home)
        if state is None or not state.ready or state.boot != process.boot():
            return None
        if not all(supervision.node_exists(node) for node in state.nodes):
            return None
        return state

    def _running(self) -> ClusterState:
        state = load_state(self.home)
        if state is None or state.boot != process.boot():
            raise NotRunning(
                f"there is no running cluster {self.name!r}",
                hint=f"`operator-runner cluster up --name {self.name}` starts it.",
            )
        return state

    def _node(self) -> Node:
        """Return the first node; raise NotRunning unless all run."""
        state = self._running()
        if state.slot is None:
            raise NotRunning(
                f"the cluster {self.name!r} has a control plane only, and no node",
                hint="Take it down and start it without --control-plane-only.",
            )
        if not state.nodes or not all(supervision.node_exists(node) for node in state.nodes):
            raise NotRunning(
                f"a node of the cluster {self.name!r} has ended; see {self.home.log_of('node')}",
                hint="`operator-runner cluster up` starts a new cluster.",
            )
        return state.nodes[0]

    def _part(self, state: ClusterState, name: str) -> Part:
        part = state.part(name)
        if part is None:
            known = ", ".join(part.name for part in state.parts)
            raise NotRunning(f"the cluster has no part {name!r}", hint=f"Its parts: {known}.")
        return part

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold off other commands that change this cluster."""
        locations.private_folder(self.home.path.parent)
        while True:
            with self._lock_file.open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not _is_file_at(self._lock_file, lock):
                    continue  # `down` has removed it while this command waited
                yield
                return


def _is_file_at(path: Path, stream: IO[str]) -> bool:
    return path.exists() and os.path.samestat(path.stat(), os.fstat(stream.fileno()))
