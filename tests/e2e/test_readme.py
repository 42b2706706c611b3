"""The first role of the README, typed as it stands there."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.operator import REPOSITORY
from tests.support.waiting import eventually

_BLOCK = re.compile(r"^( *)```\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
_ENVIRONMENT = ". .venv/bin/activate"


class Shell:
    """A user's shell: the project's environment is active, its state is the test's own."""

    def __init__(self, scratch: Path) -> None:
        self.folder = scratch
        tools = str(Path(sys.executable).parent)
        self._environ = os.environ | {
            "XDG_STATE_HOME": str(scratch / "state"),
            "PATH": f"{tools}:{os.environ['PATH']}",
            "ANSIBLE_GATHERING": "explicit",
        }

    def start(self, script: str) -> subprocess.Popen[str]:
        script = script.replace("make venv\n", "").replace(f"{_ENVIRONMENT}\n", "")
        script = script.replace(f"{_ENVIRONMENT} && ", "")
        return subprocess.Popen(
            ["bash", "-e", "-c", script],
            cwd=self.folder,
            env=self._environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, script: str) -> str:
        process = self.start(script)
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0, output
        return output


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """Give a shell; the cluster that it starts is taken away."""
    shell = Shell(tmp_path)
    try:
        yield shell
    finally:
        shell.run("operator-runner cluster down")


def _blocks() -> list[str]:
    section = (
        (REPOSITORY / "README.md").read_text().split("## Your first role")[1].split("\n## ")[0]
    )
    return [textwrap.dedent(body) for _, body in _BLOCK.findall(section)]


def test_the_first_role_of_the_readme(shell: Shell) -> None:
    """Each block works as printed, and the resource comes out as promised."""
    cluster, kind, role, watches, run, use = _blocks()
    shell.run(cluster)
    environment = 'eval "$(operator-runner cluster env)"\n'
    shell.run(environment + kind)
    shell.folder /= "hello"
    shell.run(role)
    shell.run(watches)
    # The ports of the defaults may be taken by an operator that somebody runs on this machine.
    flags = "--work-dir=work --metrics-bind-address=0 --health-probe-bind-address=0 --proxy-port=0"
    operator = shell.start(f"{environment}exec {run.strip()} {flags} &>operator.log")
    log = shell.folder / "operator.log"
    try:
        applied, rest = use.split("kubectl get configmap")
        shell.run(applied)
        look = f"{environment}kubectl get configmap{rest.splitlines()[0]}"
        eventually(
            lambda: shell.start(look).communicate()[0],
            lambda told: told == "Hello, you!\n",
            told=log.read_text,
        )
        for line in rest.splitlines()[1:]:
            shell.run(environment + line)
        gone = f"{environment}kubectl get configmap --ignore-not-found first"
        eventually(lambda: shell.run(gone), lambda told: told == "")
    finally:
        operator.send_signal(signal.SIGTERM)
        operator.communicate(timeout=60)
    assert operator.returncode == 0, log.read_text()
