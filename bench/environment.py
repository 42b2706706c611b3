"""Start the environment of a bench: a control plane, and operators with separate homes."""

from __future__ import annotations

import json
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import ClassVar

import psutil
import yaml

from bench import accounting
from bench.api import APP, FILES, LONG, NGINX, PAUSE, THREE, WEB, Api, Json, Kind, definition
from bench.errors import BenchError, TimedOut
from operator_runner.devcluster import Cluster, network
from tests.support.operator import REPOSITORY, Operator, OperatorProcess, copy_project

PROJECT = Path(__file__).parent / "project"
_IDLE_TIMEOUT_SECONDS = 180.0
_QUIET_SECONDS = 0.3
"""Time without a new process; longer than the fork server's delay before it prepares a run."""
_LOG_LINES, _LOG_WIDTH = 12, 1000
_INCLUDED = {"long": ("component",)}
"""Roles that a role includes."""
PROGRAM = Path(sys.executable).parent / "operator-runner"
_FORK_SERVER = "operator_runner.ansible.forkserver.server"


@dataclass(frozen=True, slots=True)
class Setup:
    """Configuration of an operator."""

    kind: Kind
    flags: tuple[str, ...] = ()
    more: tuple[Kind, ...] = ()
    """More kinds of the same operator."""
    artifacts: int = 20
    """Runs of a resource whose artifacts are kept; ansible-operator's default is 20."""
    kubeconfig: Path | None = None
    """Kubeconfig of a proxy to the API server; None for direct access."""
    program: Path = PROGRAM
    """Program of operator-runner, or a script that starts it."""
    keys: Mapping[str, object] = field(default_factory=dict)
    """More keys of the watch."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """More variables of the operator."""
    write_project: Callable[[Path], None] | None = None
    """Writes another project into a new folder; None for roles of the bench."""


class Site:
    """An operator process, its watched namespace, and its folders."""

    success: ClassVar[bytes] = b'"Reconciled"'
    """What the log has once for each successful run."""
    failure: ClassVar[bytes] = b'"Reconciliation failed"'
    """What the log has for each failed run; ansible-operator writes other lines."""

    def __init__(self, api: Api, kubeconfig: Path, scratch: Path, setup: Setup) -> None:
        """Prepare without starting; `scratch` must exist."""
        self.api, self.setup, self.scratch = api, setup, scratch
        self.namespace = f"bench-{secrets.token_hex(4)}"
        api.make_namespace(self.namespace)
        home, temporary = scratch / "home", scratch / "tmp"
        for folder in (home, temporary):
            folder.mkdir()
        self.folders = (scratch / "work", temporary, home)
        environment = {
            "HOME": str(home),
            "TMPDIR": str(temporary),
            "ANSIBLE_GATHERING": "explicit",
            **setup.environment,
        }
        self.operator = self._prepare(_project(scratch, setup), kubeconfig, environment)
        # A restarted operator has the same port, as with the default one.
        (self._port,) = network.free_ports("127.0.0.1", 1)
        self._read, self._ended = 0, 0
        self.failures: list[Json] = []
        """Lines of the log about failed runs, as far as `ended` has read it."""

    def _prepare(
        self, project: Path, kubeconfig: Path, environment: Mapping[str, str]
    ) -> OperatorProcess:
        """Return the operator without starting it."""
        return Operator(
            project,
            kubeconfig,
            self.namespace,
            self.scratch,
            dict(environment),
            program=self.setup.program,
        )

    def start(self, *, wait: bool = True) -> None:
        """Start the operator and wait until it is ready, unless `wait` is False."""
        self.operator.start(f"--proxy-port={self._port}", *self.setup.flags, wait=False)
        if wait:
            self.wait_for_ready()

    def wait_for_ready(self, seconds: float = 180) -> None:
        """Wait until /readyz succeeds. Raises BenchError with the end of the log."""

        def ready() -> bool:
            self._require_running()
            return self.operator.probe("readyz") == HTTPStatus.OK

        self._wait(ready, "ready", seconds)

    def kill(self) -> None:
        """End the operator without warning."""
        self.operator.kill()

    def ended(self) -> int:
        """Return the number of successful runs since the first start.

        Raises BenchError if the operator has exited on its own.
        """
        self._require_running()
        text = self._new_log()
        self._ended += text.count(self.success)
        lines = [line for line in text.splitlines() if self.failure in line]
        self.failures += [json.loads(line) for line in lines if line.startswith(b"{")]
        return self._ended

    def _new_log(self) -> bytes:
        """Return the complete lines of the log since the last call."""
        with self.operator.log_file.open("rb") as log:
            log.seek(self._read)
            text = log.read()
        whole = text.rfind(b"\n") + 1
        self._read += whole
        return text[:whole]

    def _require_running(self) -> None:
        if (status := self.operator.status()) is not None:
            raise self.failed(f"the operator has exited with status {status}")

    def failed(self, reason: str) -> BenchError:
        """Return an error with the end of the operator's log."""
        lines = self.operator.log().splitlines()[-_LOG_LINES:]
        last = "\n".join(line[:_LOG_WIDTH] for line in lines)
        return BenchError(f"{reason}; the operator's log ends with\n{last}")

    def wait_for_end(self, count: int, seconds: float = 180) -> None:
        """Wait until `count` runs have succeeded. Raises BenchError with the end of the log."""
        self._wait(lambda: self.ended() >= count, f"{count} runs ended", seconds)

    def _wait(self, check: Callable[[], bool], what: str, seconds: float) -> None:
        with self.log_in_timeouts():
            wait_until(check, what, seconds)

    @contextmanager
    def log_in_timeouts(self) -> Iterator[None]:
        """Raise BenchError with the end of the operator's log if the block times out."""
        try:
            yield
        except TimedOut as error:
            raise self.failed(str(error)) from None

    def is_busy(self) -> bool:
        """Return whether a resource is being reconciled."""
        self._require_running()
        return self.operator.metric("controller_runtime_active_workers") > 0

    def wait_for_quiet(
        self, seconds: float = _QUIET_SECONDS, timeout: float = _IDLE_TIMEOUT_SECONDS
    ) -> None:
        """Wait until nothing runs, and no process starts or ends in this time."""

        def quiet() -> bool:
            before = set(self.family())
            time.sleep(seconds)
            return before == set(self.family()) and not self.is_busy()

        wait_until(quiet, "all runs are over", timeout)

    def family(self) -> list[psutil.Process]:
        """Return the operator and all its descendants.

        While idle, these are the fork server and the processes kept ready for the next run.
        """
        return accounting.family(self.operator.pid)

    def fork_servers(self) -> list[psutil.Process]:
        """Return the fork server, and earlier ones that still have runs."""
        return self._servers(psutil.Process(self.operator.pid))

    def runs(self) -> list[psutil.Process]:
        """Return the head of each run's process tree; one may be for the next run."""
        head = psutil.Process(self.operator.pid)
        servers = self._servers(head)
        cold = [child for child in accounting.children(head) if child not in servers]
        return [*cold, *(run for server in servers for run in accounting.children(server))]

    def processes(self) -> list[psutil.Process]:
        """Return all processes started by an operator of this site, orphans included."""
        return accounting.with_environment("TMPDIR", str(self.folders[1]))

    def cpu_seconds(self) -> float:
        """Return the CPU time of operator, fork server and all runs so far."""
        return accounting.cpu_seconds(self.operator.pid)

    def files(self) -> int:
        """Return the number of files in work dir, temporary folder and home."""
        return accounting.files(self.folders)

    def _servers(self, head: psutil.Process) -> list[psutil.Process]:
        children = accounting.children(head)
        return [child for child in children if _FORK_SERVER in accounting.command_line(child)]


class BenchEnvironment:
    """A control plane with the bench's kinds."""

    def __init__(self, cluster: Cluster, scratch: Path) -> None:
        """Install the kinds on a running cluster; `scratch` is the folder for all files."""
        self.cluster, self.scratch = cluster, scratch
        self.api = Api(cluster.kubeconfig, scratch / "discovery.json")
        own = [definition(kind) for kind in (THREE, WEB, PAUSE, LONG, FILES, APP)]
        nginx = [yaml.safe_load(path.read_text()) for path in REPOSITORY.glob("crds/*_*.yaml")]
        for crd in nginx:
            _accept_any_status(crd)
        self.api.install([*own, *nginx])

    @contextmanager
    def site(self, setup: Setup) -> Iterator[Site]:
        """Run an operator in its own namespace until the block ends."""
        scratch = self.scratch / secrets.token_hex(4)
        scratch.mkdir()
        kubeconfig = setup.kubeconfig or self.cluster.kubeconfig
        site = Site(self.api, kubeconfig, scratch, setup)
        try:
            site.start()
            yield site
        finally:
            site.kill()


@contextmanager
def open_environment() -> Iterator[BenchEnvironment]:
    """Run a control plane until the block ends, then remove it with all files."""
    # SIGTERM cleans up like Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    cluster = Cluster(f"bench-{secrets.token_hex(3)}")
    cluster.up(control_plane_only=True)
    try:
        with tempfile.TemporaryDirectory(prefix="operator-runner-bench-") as scratch:
            yield BenchEnvironment(cluster, Path(scratch))
    finally:
        cluster.down()


def wait_until(check: Callable[[], bool], what: str, seconds: float, every: float = 0.01) -> None:
    """Poll `check` until it returns True. Raises TimedOut after `seconds`."""
    deadline = time.monotonic() + seconds
    while not check():
        if time.monotonic() > deadline:
            raise TimedOut(f"timed out after {seconds:g} s: {what}")
        time.sleep(every)


def _accept_any_status(crd: Json) -> None:
    """Accept the conditions of ansible-operator, whose Successful has an empty reason."""
    for version in crd["spec"]["versions"]:
        status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version["schema"]["openAPIV3Schema"]["properties"]["status"] = status


def _project(scratch: Path, setup: Setup) -> Path:
    """Write an operator project: with roles of the bench, and of this repository for its kind."""
    project = scratch / "project"
    if setup.write_project is not None:
        setup.write_project(project)
        return project
    kinds = (setup.kind, *setup.more)
    watches: list[dict[str, object]] = []
    if NGINX in kinds:
        copy_project(project)
        config = yaml.safe_load((project / "watches.yaml").read_text())
        # Two operators run at once; the API server calls the conversion webhook of one only. Both
        # have the default period, so that nothing runs in a quiet time.
        left_out = {"conversion", "reconcilePeriod"}
        watches += [{k: v for k, v in watch.items() if k not in left_out} for watch in config]
    for kind in kinds:
        if kind == NGINX:
            continue
        role = kind.name.lower()
        # Not all roles: one uses `k8s_exec`, for which the fork server of each would load the core
        # API.
        for name in (role, *_INCLUDED.get(role, ())):
            shutil.copytree(PROJECT / "roles" / name, project / "roles" / name)
        group, version = kind.api_version.split("/")
        watches.append({"group": group, "version": version, "kind": kind.name, "role": role})
    common = {
        # The bench requests a run without changes by an annotation.
        "watchAnnotationsChanges": True,
        "maxRunnerArtifacts": setup.artifacts,
        **setup.keys,
    }
    (project / "watches.yaml").write_text(yaml.safe_dump([each | common for each in watches]))
    return project
