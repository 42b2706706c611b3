"""Two operators on one machine, neither with flags for ports or a work dir."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.functional.test_operator import echo, text_of
from tests.support.kubectl import Kubectl
from tests.support.waiting import eventually

PROGRAM = str(Path(sys.executable).parent / "operator-runner")


@contextmanager
def _operator(project: Path, log: Path, environment: dict[str, str]) -> Iterator[None]:
    with log.open("wb") as file:
        process = subprocess.Popen(
            [PROGRAM, "run"], cwd=project, env=environment, stdout=file, stderr=file
        )
        try:
            eventually(log.read_text, lambda text: "All kinds are watched" in text)
            yield
        finally:
            process.kill()
            process.wait()


def test_defaults_that_are_in_use_are_replaced(
    kubectl: Kubectl, control_plane: Path, project: Path, tmp_path: Path
) -> None:
    """The second one logs what it uses, and both reconcile; so does `run --once` beside them."""
    environment = os.environ | {
        "KUBECONFIG": str(control_plane),
        "WATCH_NAMESPACE": kubectl.namespace,
        "ANSIBLE_GATHERING": "explicit",
    }
    environment.pop("KUBERNETES_SERVICE_HOST", None)
    logs = [tmp_path / "first.log", tmp_path / "second.log"]
    with ExitStack() as operators:
        for log in logs:
            operators.enter_context(_operator(project, log, environment))
        used = [
            dict(re.findall(r"--([a-z-]+)=([^ \"]+)", line))
            for line in logs[1].read_text().splitlines()
            if "The default is in use" in line
        ]
        flags = {name for each in used for name in each}
        assert flags >= {"metrics-bind-address", "health-probe-bind-address", "work-dir"}, logs
        kubectl.apply(echo("a", sayThis="1"))
        eventually(lambda: text_of(kubectl), lambda text: text == "hello 1")
        once = subprocess.run(
            [PROGRAM, "run", "--once=echo/a", f"--namespace={kubectl.namespace}"],
            cwd=project,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert once.returncode == 0, once.stderr
