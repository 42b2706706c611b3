"""Run ansible-operator itself: its operator in Go, which starts ansible-runner.

The Go module in `ansible_operator/` pins its version. ansible-runner and Ansible are those of this
environment, or those of the image of ansible-operator.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.api import Api
from bench.environment import BenchEnvironment, Setup, Site, wait_until
from bench.errors import BenchError
from operator_runner.ansible.run_spec import COLLECTIONS
from operator_runner.devcluster import building, network
from operator_runner.devcluster.errors import PortTaken
from tests.support.operator import OperatorProcess

_BUILD = Path("build/bench").resolve()
_MODULE = Path(__file__).parent / "ansible_operator"
_REQUIRED = "github.com/operator-framework/ansible-operator-plugins"
_GO = (1, 25)
_PLUGIN = "ansible_runner_http"
_CLIENT = "requests-unixsocket==0.4.1"
"""What the plugin imports, in the version of ansible-operator's Pipfile."""
_OF_PROJECTS = "jmespath"
"""Images of projects add it, for `json_query`."""
_PROXY_PORT, _API_PORT = 8888, 5050
"""The kubeconfigs of runs have this port of the proxy, whatever the flag; the other is fixed."""
_FILES = Path("/tmp/ansible-operator")  # noqa: S108 - ansible-operator has no flag for it
_FAILED, _CONFLICT = '"msg":"Reconciler error"', "the object has been modified"
_TASK_FAILED, _RESULT = '"error":"[playbook task failed]"', "FAILED! => "
_COLOR = re.compile("\x1b\\[[0-9;]*m")
_TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Installation:
    """What ansible-operator consists of."""

    program: Path
    packages: Path
    """Folder for PYTHONPATH, with its plugin of ansible-runner."""
    tools: Path
    """Folder for PATH, with ansible-runner and ansible-playbook."""


def install(*, as_released: bool = False) -> Installation:
    """Build ansible-operator and install its plugin of ansible-runner below `build/`.

    `as_released`: with the Ansible of its image, instead of that of this environment. The first
    time takes some minutes. Raises BenchError and ClusterError.
    """
    program = _BUILD / "go" / _MODULE.name
    _go("build", "-o", str(program), f"{_REQUIRED}/cmd/ansible-operator")
    module = Path(_go("list", "-m", "-f", "{{.Dir}}", _REQUIRED).strip())
    image = module / "images" / "ansible-operator"
    packages = _BUILD / module.name
    if not packages.exists():
        _install_plugin(image / _PLUGIN, packages)
    tools = Path(sys.executable).parent
    if as_released:
        tools = _BUILD / f"{module.name}-python" / "bin"
        if not (tools / "ansible-runner").exists():
            _install_image(image / "Pipfile.lock", tools)
    return Installation(program, packages, tools)


def _go(*arguments: str) -> str:
    """Run a command of Go in the folder of the module; return its output."""
    done = subprocess.run(
        [building.find_go(_GO, str(_MODULE)), *arguments],
        cwd=_MODULE,
        env=building.go_environment({}),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BenchError(f"go {arguments[0]} in {_MODULE} failed: {done.stderr}")
    return done.stdout


def _install_plugin(source: Path, target: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        # Its build writes into its folder, and Go's cache has to remain as it is.
        for path in source.rglob("*.py"):
            copy = Path(scratch) / path.relative_to(source)
            copy.parent.mkdir(exist_ok=True)
            shutil.copyfile(path, copy)
        _pip(sys.executable, "--target", str(target), scratch, _CLIENT)


def _install_image(lock: Path, tools: Path) -> None:
    """Install the Python packages of the image of ansible-operator, for this version of Python.

    Collections are those of this environment.
    """
    venv.create(tools.parent, clear=True, with_pip=True)
    found = json.loads(lock.read_text())["default"]
    wanted = (f"{name}{package['version']}" for name, package in found.items())
    _pip(str(tools / "python"), *wanted, _OF_PROJECTS)
    packages = sysconfig.get_path("purelib", vars={"base": str(tools.parent)})
    collections = Path(sysconfig.get_path("purelib"), "ansible_collections")
    Path(packages, collections.name).symlink_to(collections)


def _pip(python: str, *arguments: str) -> None:
    command = [python, "-m", "pip", "install", "--quiet", "--no-deps", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchError(f"{' '.join(command)} failed: {done.stdout}{done.stderr}")


class AnsibleOperator(Site):
    """A site of ansible-operator instead of operator-runner."""

    success = b'"Ansible-runner exited successfully"'

    def __init__(
        self, api: Api, kubeconfig: Path, scratch: Path, setup: Setup, installed: Installation
    ) -> None:
        """Prepare without starting. The program of the setup is not used."""
        self._installed = installed
        super().__init__(api, kubeconfig, scratch, setup)
        self.folders = (_FILES, *self.folders[1:])

    def _prepare(
        self, project: Path, kubeconfig: Path, environment: Mapping[str, str]
    ) -> OperatorProcess:
        path = os.environ.get("PATH", os.defpath)
        variables = {
            **environment,
            "ANSIBLE_ROLES_PATH": str(project / "roles"),
            "KUBECONFIG": str(kubeconfig),
            "PATH": os.pathsep.join([str(self._installed.tools), path]),
            # Collections are found on it as well, operator_sdk.util among them.
            "PYTHONPATH": os.pathsep.join([str(self._installed.packages), str(COLLECTIONS)]),
            "WATCH_NAMESPACE": self.namespace,
        }
        return OperatorProcess(self._installed.program, project, self.scratch, variables)

    def start(self, *, wait: bool = True) -> None:
        """Start the operator and wait until it is ready, unless `wait` is False.

        Raises BenchError if another program has one of its ports.
        """
        for port in (_PROXY_PORT, _API_PORT):
            _require_free(port)
        self.operator.start(f"--proxy-port={_PROXY_PORT}", *self.setup.flags, wait=False)
        if wait:
            self.wait_for_ready()

    def kill(self) -> None:
        """End the operator and its runs, and delete its files."""
        self.operator.kill()
        wait_until(self._kill_runs, "runs of ansible-operator ended", _TIMEOUT_SECONDS)
        if _FILES.exists():
            shutil.rmtree(_FILES)

    def _kill_runs(self) -> bool:
        """Kill the processes of runs; return whether there were none."""
        found = self.processes()
        for process in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        return not found

    def _new_log(self) -> bytes:
        """Return the lines of the log since the last call.

        Raises BenchError if they report a failed reconcile, after which it would try again.
        """
        text = super()._new_log()
        if failed := failures(text.decode(errors="replace")):
            reason = failed_task(self.operator.log()) or failed[0]
            raise self.failed(f"a reconcile of ansible-operator has failed: {reason}")
        return text


@contextmanager
def running(
    environment: BenchEnvironment, setup: Setup, *, as_released: bool = False
) -> Iterator[AnsibleOperator]:
    """Run ansible-operator in its own namespace until the block ends; see `install`.

    Raises BenchError and ClusterError.
    """
    installed = install(as_released=as_released)
    if _FILES.exists():
        raise BenchError(f"{_FILES} exists: end the ansible-operator that uses it, and delete it")
    scratch = environment.scratch / secrets.token_hex(4)
    scratch.mkdir()
    kubeconfig = setup.kubeconfig or environment.cluster.kubeconfig
    site = AnsibleOperator(environment.api, kubeconfig, scratch, setup, installed)
    try:
        site.start()
        yield site
    finally:
        site.kill()


def failures(log: str) -> list[str]:
    """Return the errors of failed reconciles in lines of the log of ansible-operator.

    A conflict is not one: the operator writes the status again.
    """
    lines = [line for line in log.splitlines() if _FAILED in line]
    errors = [str(json.loads(line)["error"]) for line in lines]
    return [error for error in errors if _CONFLICT not in error]


def failed_task(log: str) -> str:
    """Return task and result of the last failed task in the log of ansible-operator, or nothing."""
    task = result = ""
    for line in _COLOR.sub("", log).splitlines():
        if _TASK_FAILED in line and line.startswith("{"):
            task, result = str(json.loads(line).get("EventData.Task")), ""
        elif task and not result:
            result = line.partition(_RESULT)[2]
    return f"task {task!r}: {result}" if task else ""


def _require_free(port: int) -> None:
    try:
        network.require_port("127.0.0.1", port)
    except PortTaken:
        raise BenchError(
            f"ansible-operator needs port {port} of 127.0.0.1, which another program uses: end it"
        ) from None
