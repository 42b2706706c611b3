"""`make demo` and `make demo-down` from a checkout, as a stranger runs them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from operator_runner.devcluster.locations import home_of
from tests.support.machine import Traces, traces
from tests.support.operator import REPOSITORY
from tests.support.waiting import eventually

_NOTHING = Traces(*(frozenset[str]() for _ in range(6)))


class Checkout:
    """A copy of the project: the demo of the one that is tested stays as it is."""

    def __init__(self, path: Path) -> None:
        self.path = path
        for name in ("demo", "crds", "config", "roles"):
            shutil.copytree(REPOSITORY / name, path / name)
        shutil.copy(REPOSITORY / "watches.yaml", path)
        # The commands that the demo prints name .venv.
        (path / ".venv").symlink_to(Path(sys.prefix))

    def make(self, target: str, *arguments: str) -> str:
        """Run `make demo` (`up`) or `make demo-down` (`down`); return the output."""
        command = (sys.executable, "-m", f"demo.{target}", *arguments)
        done = subprocess.run(command, cwd=self.path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def shell(self, command: str) -> str:
        """Run a command as printed, in an ordinary shell: without this process's KUBECONFIG."""
        environment = {key: value for key, value in os.environ.items() if key != "KUBECONFIG"}
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def cluster_name(self) -> str:
        """Return the name of the cluster of this checkout."""
        code = "from demo import record; print(record.cluster_name())"
        return self.shell(f"{sys.executable} -c '{code}'").strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Checkout]:
    """Copy the project; remove everything that a test leaves running."""
    checkout = Checkout(tmp_path / "checkout")
    yield checkout
    checkout.make("down")


def _printed(output: str) -> dict[str, list[str]]:
    """Return the commands that the demo suggests, by the title above them."""
    found: dict[str, list[str]] = {}
    commands: list[str] = []
    for line in output.partition("Try next")[2].splitlines():
        if line.startswith("    "):
            commands.append(line.strip())
        elif line.endswith(":"):
            commands = found.setdefault(line.removesuffix(":"), [])
    return found


def _of_operator(checkout: Checkout) -> list[str]:
    processes = psutil.process_iter(["cmdline"])
    lines = (" ".join(process.info["cmdline"] or ()) for process in processes)
    return [line for line in lines if str(checkout.path / ".demo") in line]


def test_the_demo_shows_the_whole_path_and_leaves_nothing(checkout: Checkout) -> None:
    """From nothing to HTTP 200, with commands that work as printed; then all is deleted."""
    output = checkout.make("up", "local")
    for shown in (
        "[playbook task]",
        "Reconciled",
        "Deployment cluster: 1 of 1 available",
        "HTTP 200 from nginx through Service cluster",
        "operator successfully reconciling",
    ):
        assert shown in output
    assert re.search(r"Available +True +DependentsReady", output)
    commands = _printed(output)
    assert "nginx" in checkout.shell(commands["Fetch the page"][0])
    _, patch, pods, describe = commands["Change the resource"]
    checkout.shell(patch)
    eventually(lambda: checkout.shell(pods), lambda table: table.count(" Running ") == 3)
    assert "OperatorDegraded" in checkout.shell(describe)
    metrics, probe = commands["Look at metrics and probes"]
    assert checkout.shell(metrics).startswith("reconciles_total ")
    assert "readyz check passed" in checkout.shell(probe)
    delete, deployments = commands["Delete the Deployment: the operator creates it again"]
    checkout.shell(delete)
    eventually(lambda: checkout.shell(deployments), lambda table: " 3/3 " in table)

    again = checkout.make("up", "local")
    assert "Deployment cluster: 3 of 3 available" in again  # as the user left it
    # A run may be active beside it; another operator would remain.
    eventually(lambda: len(_of_operator(checkout)), (1).__eq__)

    home = home_of(checkout.cluster_name(), os.environ)
    checkout.make("down")
    assert _of_operator(checkout) == []
    assert traces(home.path, home.token) == _NOTHING
    assert not home.path.exists()
    assert not (checkout.path / ".demo").exists()
    assert not (checkout.path / "bin").exists()


def test_a_failing_role_is_shown_with_its_reason(checkout: Checkout) -> None:
    """The demo ends with the reason, and stays up for the repair."""
    tasks = checkout.path / "roles" / "nginx" / "tasks" / "main.yml"
    good = tasks.read_text()
    tasks.write_text(good + "- name: Say no\n  ansible.builtin.fail:\n    msg: not today\n")
    command = (sys.executable, "-m", "demo.up", "local")
    done = subprocess.run(command, cwd=checkout.path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Say no" in done.stdout
    assert "not today" in done.stdout
    assert f"Log: {checkout.path / '.demo' / 'operator.log'}" in done.stdout
    tasks.write_text(good)
    eventually(
        lambda: checkout.shell("bin/kubectl get nginxoperator cluster --output=yaml"),
        lambda shown: "Last reconciliation succeeded" in shown,
        details=lambda: checkout.shell("tail -20 .demo/operator.log"),
    )
