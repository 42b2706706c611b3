"""`operator-runner run --once` reconciles one resource and exits with its status."""

from __future__ import annotations

import os
import socket
import subprocess
from contextlib import closing, suppress
from pathlib import Path

import pytest
import yaml

from tests.functional.test_operator import KIND, ROLE, echo, text_of
from tests.support.kubectl import Kubectl
from tests.support.scaffold import OPERATOR_RUNNER

METRIC = """
- name: Send a metric
  operator_sdk.util.osdk_metric:
    name: greetings
    description: Greetings that were written
    gauge: {set: 1}
"""


def _command(project: Path, kubeconfig: Path, resource: str, *flags: str) -> list[str]:
    return [
        str(OPERATOR_RUNNER),
        "run",
        f"--once={resource}",
        f"--kubeconfig={kubeconfig}",
        f"--work-dir={project.parent / 'work'}",
        *flags,
    ]


def _environment(kubectl: Kubectl) -> dict[str, str]:
    return os.environ | {"WATCH_NAMESPACE": kubectl.namespace, "ANSIBLE_GATHERING": "explicit"}


def _run_once(
    project: Path, kubectl: Kubectl, kubeconfig: Path, resource: str, *flags: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        _command(project, kubeconfig, resource, *flags),
        cwd=project,
        env=_environment(kubectl),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_exit_status_is_that_of_the_run(
    kubectl: Kubectl, control_plane: Path, project: Path
) -> None:
    """The status and the owner reference are those of any run; other resources are left alone.

    So are the ports of an operator on this machine; metrics of the role have one of their own.
    """
    kubectl.apply(echo(sayThis="1"), echo("b"))
    role = project / ROLE
    role.write_text(role.read_text() + METRIC)
    with closing(socket.socket()) as of_operator:
        of_operator.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):  # another operator has it
            of_operator.bind(("127.0.0.1", 5050))
            of_operator.listen()
        done = _run_once(project, kubectl, control_plane, "echoes/a")
    assert done.returncode == 0, done.stderr
    assert '"level":"warning"' not in done.stderr
    assert "Serving" not in done.stderr
    assert text_of(kubectl) == "hello 1"
    created = kubectl.get("configmap", "a")
    assert created is not None
    assert created["metadata"]["ownerReferences"][0]["name"] == "a"
    kubectl("wait", "--for=condition=Successful", f"{KIND}/a", "--timeout=0s")
    assert text_of(kubectl, "b") is None

    role.write_text(role.read_text() + "- {name: Refuse, ansible.builtin.fail: {msg: not today}}\n")
    # -n wins over WATCH_NAMESPACE.
    nothing = _run_once(project, kubectl, control_plane, "echo/a", "-n", "default")
    assert nothing.returncode == 1
    assert "Echo default/a" in nothing.stderr
    # The prefix of a group, as kubectl takes it.
    failed = _run_once(project, kubectl, control_plane, "echo.test/a")
    assert failed.returncode == 1
    assert "not today" in failed.stderr
    kubectl("wait", "--for=condition=Failure", f"{KIND}/a", "--timeout=0s")


def test_a_context_of_the_kubeconfig_selects_the_cluster(
    kubectl: Kubectl, control_plane: Path, project: Path
) -> None:
    """Not the current one, as in all commands; its namespace is that of the resource."""
    kubectl.apply(echo(sayThis="1"))
    config = yaml.safe_load(control_plane.read_text())
    [context] = config["contexts"]
    chosen = {"name": "chosen", "context": {**context["context"], "namespace": kubectl.namespace}}
    closed = {"name": "closed", "cluster": {"server": "https://127.0.0.1:9"}}
    other = {"name": "other", "context": {**context["context"], "cluster": "closed"}}
    config |= {"contexts": [other, chosen], "current-context": "other"}
    config["clusters"].append(closed)
    file = project.parent / "contexts"
    file.write_text(yaml.safe_dump(config))
    done = _run_once(project, kubectl, file, "echo/a", "--context=chosen")
    assert done.returncode == 0, done.stderr
    assert text_of(kubectl) == "hello 1"
    unknown = _run_once(project, kubectl, file, "echo/a", "--context=none")
    assert unknown.returncode == 1
    assert "unknown context none; its contexts are other, chosen" in unknown.stderr


def test_a_resource_that_does_not_exist_is_an_error(
    kubectl: Kubectl, control_plane: Path, project: Path
) -> None:
    """With the reason in the log."""
    done = _run_once(project, kubectl, control_plane, "echo/none")
    assert done.returncode == 1
    assert "Resource does not exist" in done.stderr


def test_a_user_who_may_not_read_the_resource_is_named(
    kubectl: Kubectl, control_plane: Path, project: Path
) -> None:
    """In one line, as other errors of the configuration."""
    kubectl.apply(echo(sayThis="1"))
    config = yaml.safe_load(control_plane.read_text())
    config["users"][0]["user"]["as"] = "nobody"
    file = project.parent / "nobody"
    file.write_text(yaml.safe_dump(config))
    done = _run_once(project, kubectl, file, "echo/a")
    assert done.returncode == 1
    assert 'User "nobody" cannot' in done.stderr
    assert "Traceback" not in done.stderr
    assert "Internal error" not in done.stderr


def test_kinds_that_are_not_installed_do_not_affect_the_others(
    kubectl: Kubectl, control_plane: Path, project: Path
) -> None:
    """They are named if the resource has none of the installed kinds."""
    kubectl.apply(echo(sayThis="1"))
    watches = project / "watches.yaml"
    later = "- {group: missing.example.com, version: v1, kind: Later, role: echo}\n"
    watches.write_text(later + watches.read_text())
    done = _run_once(project, kubectl, control_plane, "echo/a")
    assert done.returncode == 0, done.stderr
    assert text_of(kubectl) == "hello 1"
    missing = _run_once(project, kubectl, control_plane, "later/a")
    assert missing.returncode == 1
    assert "no kind Later in missing.example.com/v1: its CRD is missing" in missing.stderr


def test_watches_without_an_installed_kind_are_reported_with_the_reasons(
    kubectl: Kubectl, control_plane: Path, project: Path
) -> None:
    """The kind that the user names, those of the watches, and why they cannot be run."""
    (project / "watches.yaml").write_text(
        "- {group: missing.example.com, version: v1, kind: Later, role: echo}\n"
    )
    missing = _run_once(project, kubectl, control_plane, "echo/a")
    assert missing.returncode == 1
    assert "echo is echo.test.example.com, which is not in watches.yaml" in missing.stderr
    reason = "it has later.missing.example.com; no kind Later in missing.example.com/v1"
    assert reason in missing.stderr


@pytest.mark.parametrize("policy", ["warn", pytest.param("ignore", marks=pytest.mark.slow)])
def test_the_role_writes_with_every_policy_of_drift(
    kubectl: Kubectl, control_plane: Path, project: Path, policy: str
) -> None:
    """The user has asked for the run, so the exit status is that of a run, not of a preview."""
    kubectl.apply(echo(sayThis="1"))
    watches = project / "watches.yaml"
    watches.write_text(f"{watches.read_text()}  drift: {policy}\n")
    assert _run_once(project, kubectl, control_plane, "echo/a").returncode == 0
    kubectl("patch", "configmap", "a", '--patch={"data": {"text": "other"}}')
    done = _run_once(project, kubectl, control_plane, "echo/a")
    assert (done.returncode, text_of(kubectl)) == (0, "hello 1"), done.stderr
    role = project / ROLE
    role.write_text(role.read_text() + "- {name: Refuse, ansible.builtin.fail: {msg: no}}\n")
    assert _run_once(project, kubectl, control_plane, "echo/a").returncode == 1
