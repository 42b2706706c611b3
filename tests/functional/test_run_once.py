"""`operator-runner run --once` reconciles one resource and exits with its status."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.functional.test_operator import KIND, ROLE, echo, text_of
from tests.support.kubectl import Kubectl
from tests.support.scaffold import OPERATOR_RUNNER


def _run_once(
    project: Path, kubectl: Kubectl, kubeconfig: Path, resource: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            OPERATOR_RUNNER,
            "run",
            f"--once={resource}",
            f"--kubeconfig={kubeconfig}",
            f"--work-dir={project.parent / 'work'}",
            "--user-metrics-bind-address=0",
        ],
        cwd=project,
        env=os.environ | {"WATCH_NAMESPACE": kubectl.namespace, "ANSIBLE_GATHERING": "explicit"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_exit_status_is_that_of_the_run(
    kubectl: Kubectl, control_plane: Path, project: Path
) -> None:
    """The status and the owner reference are those of any run; other resources are left alone."""
    kubectl.apply(echo(sayThis="1"), echo("b"))
    done = _run_once(project, kubectl, control_plane, "echoes/a")
    assert done.returncode == 0, done.stderr
    assert text_of(kubectl) == "hello 1"
    created = kubectl.get("configmap", "a")
    assert created is not None
    assert created["metadata"]["ownerReferences"][0]["name"] == "a"
    kubectl("wait", "--for=condition=Successful", f"{KIND}/a", "--timeout=0s")
    assert text_of(kubectl, "b") is None

    role = project / ROLE
    role.write_text(role.read_text() + "- {name: Refuse, ansible.builtin.fail: {msg: not today}}\n")
    failed = _run_once(project, kubectl, control_plane, "echo/a")
    assert failed.returncode == 1
    assert "not today" in failed.stderr
    kubectl("wait", "--for=condition=Failure", f"{KIND}/a", "--timeout=0s")


def test_a_resource_that_does_not_exist_is_an_error(
    kubectl: Kubectl, control_plane: Path, project: Path
) -> None:
    """With the reason in the log."""
    done = _run_once(project, kubectl, control_plane, "echo/none")
    assert done.returncode == 1
    assert "Resource does not exist" in done.stderr
