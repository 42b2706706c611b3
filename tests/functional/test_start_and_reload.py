"""What `run` reports while it starts and waits, and edits of watches.yaml with --reload."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import operator_runner
from tests.functional.test_operator import KIND, ROLE, wait_for_text
from tests.support.kubectl import Json, Kubectl
from tests.support.operator import Operator, free_port
from tests.support.waiting import eventually

ECHO = {"apiVersion": "test.example.com/v1", "kind": "Echo", "metadata": {"name": "a"}}
GROUP = "voice.example.com"
PACKAGE = Path(operator_runner.__file__).parent


def crd(kind: str, *versions: str) -> Json:
    plural = f"{kind.lower()}s"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural},
            "versions": [
                {
                    "name": each,
                    "served": True,
                    "storage": each == versions[0],
                    "schema": schema,
                    "subresources": {"status": {}},
                }
                for each in versions
            ],
        },
    }


def watch(kind: str, version: str = "v1", role: str = "echo") -> str:
    entry = {"group": GROUP, "version": version, "kind": kind, "role": role}
    return json.dumps([entry | {"vars": {"greeting": "hello"}}])


@pytest.fixture
def wiki(kubectl: Kubectl) -> Iterator[str]:
    """Give the name of a CRD that the test may install; it is deleted afterwards."""
    yield f"wikis.{GROUP}"
    kubectl("delete", "crd", f"wikis.{GROUP}", "--ignore-not-found")


def test_the_start_logs_watches_and_ports(operator: Operator, kubectl: Kubectl) -> None:
    """Kinds with their roles, ports, reload; then that all is watched, and each deletion."""
    operator.start("--reload")
    (watching,) = operator.lines("Watching resource")
    assert watching["gvk"] == "test.example.com/v1, Kind=Echo"
    assert watching["role"] == f"{operator.project}/roles/echo"
    assert watching["finalizer"] == "test.example.com/farewell"
    (started,) = operator.lines("Starting")
    assert started["namespaces"] == kubectl.namespace
    (metrics,) = operator.lines("Serving metrics")
    assert metrics["url"] == f"http://{operator.metrics_address}/metrics"
    (probes,) = operator.lines("Serving probes")
    assert probes["url"] == f"http://{operator.probe_address}/readyz"
    (reloading,) = operator.lines("Reloading edited roles, playbooks and watches")
    assert reloading["file"] == f"{operator.project}/watches.yaml"
    eventually(lambda: operator.lines("All kinds are watched"), details=operator.log)
    kubectl.apply(ECHO)
    eventually(lambda: operator.lines("Reconciled"), details=operator.log)
    kubectl("delete", "echoes.test.example.com", "a")
    eventually(lambda: operator.lines("Finalized"), details=operator.log)
    eventually(
        lambda: operator.lines("Deleted: the resource no longer exists"), details=operator.log
    )


def test_an_api_server_that_cannot_be_reached_is_reported_once(
    kubectl: Kubectl, project: Path, tmp_path: Path
) -> None:
    """The line has the address and the reason; the operator continues to retry."""
    config = json.loads(kubectl("config", "view", "--raw", "--minify", "--output=json"))
    address = f"https://127.0.0.1:{free_port()}"
    config["clusters"][0]["cluster"]["server"] = address
    kubeconfig = tmp_path / "unreachable"
    kubeconfig.write_text(json.dumps(config))
    operator = Operator(project, kubeconfig, kubectl.namespace, tmp_path, {})
    try:
        operator.start(wait=False)
        (waiting,) = eventually(
            lambda: operator.lines("Waiting for the API server"), details=operator.log
        )
        assert f"GET /apis: {address}: cannot connect to 127.0.0.1:" in waiting["error"]
        assert operator.terminate() == 0
        assert "Traceback" not in operator.log()
    finally:
        operator.kill()


def test_a_kind_that_is_not_served_is_reported_with_the_nearest_one(
    operator: Operator, kubectl: Kubectl, wiki: str
) -> None:
    """Misspelt, in a version that is not served, installed, deleted, installed again."""
    file = operator.project / "watches.yaml"
    kubectl.apply(crd("Wiki", "v1", "v1alpha1"))
    kubectl.wait_for_kinds(wiki)
    file.write_text(watch("Wikki"))
    operator.start(wait=False)
    (waiting,) = eventually(
        lambda: operator.lines("Waiting for a watched kind"), details=operator.log
    )
    near = f"did you mean Wiki in group {GROUP}, served in v1 and v1alpha1?"
    assert waiting["error"].startswith(f"no kind Wikki in {GROUP}/v1: {near} If not, install its")
    operator.terminate()
    file.write_text(watch("Wiki", "v2"))
    operator.start(wait=False)
    waiting = eventually(
        lambda: operator.lines("Waiting for a watched kind")[1:], details=operator.log
    )[0]
    versions = "it is served in v1 and v1alpha1; correct `version`, or add it to the CRD"
    assert waiting["error"] == f"no kind Wiki in {GROUP}/v2: {versions}"
    kubectl.apply(crd("Wiki", "v1", "v1alpha1", "v2"))
    eventually(lambda: operator.lines("Watched kind is served"), details=operator.log)
    eventually(lambda: operator.lines("All kinds are watched"), details=operator.log)
    kubectl("delete", "crd", wiki)
    eventually(lambda: operator.lines("Watched kind is no longer served"), details=operator.log)
    kubectl.apply(crd("Wiki", "v1", "v1alpha1", "v2"))
    eventually(
        lambda: operator.lines("Watched kind is served"),
        lambda lines: len(lines) >= 2,
        details=operator.log,
    )
    assert "Traceback" not in operator.log()


def test_an_edit_of_the_watches_file_takes_effect(
    operator: Operator, kubectl: Kubectl, wiki: str
) -> None:
    """A valid edit restarts the operator in its process; an invalid one is reported."""
    kubectl.apply(crd("Wiki", "v1"))
    kubectl.wait_for_kinds(wiki)
    file = operator.project / "watches.yaml"
    operator.start("--reload")
    pid = operator.pid
    file.write_text(watch("Wiki", role="none"))
    (problem,) = eventually(
        lambda: operator.lines("Watches file is invalid: keeping the old one"),
        details=operator.log,
    )
    assert problem["error"].startswith(f"{file}:1: [0].role: role: none was not found; searched")
    kubectl.apply(ECHO)
    eventually(lambda: operator.lines("Reconciled"), details=operator.log)
    file.write_text(watch("Wiki"))
    eventually(lambda: operator.lines("Watches file was edited: restarting"), details=operator.log)
    eventually(
        lambda: operator.lines("All kinds are watched"),
        lambda lines: len(lines) >= 2,
        details=operator.log,
        seconds=300,
    )
    kubectl.apply({**ECHO, "apiVersion": f"{GROUP}/v1", "kind": "Wiki"})
    eventually(
        lambda: [line for line in operator.lines("Reconciled") if line["kind"] == "Wiki"],
        details=operator.log,
    )
    assert operator.pid == pid
    assert operator.terminate() == 0


def test_a_restart_waits_until_the_watches_file_is_valid(
    operator: Operator, kubectl: Kubectl, wiki: str, tmp_path: Path
) -> None:
    """It may be edited while the runs before the restart end."""
    kubectl.apply(crd("Wiki", "v1"))
    kubectl.wait_for_kinds(wiki)
    file, go_on = operator.project / "watches.yaml", tmp_path / "go-on"
    task = f"- {{name: Wait, ansible.builtin.wait_for: {{path: {go_on}, timeout: 600}}}}\n"
    (operator.project / ROLE).write_text(task)
    operator.start("--reload", "--graceful-shutdown-timeout=5m")
    pid = operator.pid
    kubectl.apply(ECHO)
    eventually(lambda: operator.lines("[playbook task start]"), details=operator.log)
    file.write_text(watch("Wiki"))
    eventually(lambda: operator.lines("Watches file was edited: restarting"), details=operator.log)
    file.write_text(watch("Wiki", role="none"))
    go_on.touch()
    (problem,) = eventually(
        lambda: operator.lines("Watches file is invalid: waiting for an edit"),
        details=operator.log,
    )
    assert problem["error"].startswith(f"{file}:1: [0].role: role: none was not found; searched")
    file.write_text(watch("Wiki"))
    eventually(
        lambda: operator.lines("All kinds are watched"),
        lambda lines: len(lines) >= 2,
        details=operator.log,
        seconds=300,
    )
    assert operator.pid == pid
    assert operator.terminate() == 0


def test_an_upgrade_of_its_files_restarts_the_operator(
    control_plane: Path, kubectl: Kubectl, project: Path, tmp_path: Path
) -> None:
    """As by pip in a running Pod: new processes do not understand the operator of before."""
    package = Path(shutil.copytree(PACKAGE, tmp_path / "lib" / PACKAGE.name))
    environment = {"PYTHONPATH": str(package.parent)}
    operator = Operator(project, control_plane, kubectl.namespace, tmp_path, environment)
    try:
        pid = operator.start().pid
        kubectl.apply(ECHO)
        wait_for_text(kubectl, operator, "hello nothing")
        for name in ("launcher.py", "server.py"):
            file = package / "ansible" / "forkserver" / name
            old = file.read_text()
            assert '"requested_at"' in old
            file.write_text(old.replace('"requested_at"', '"asked_at"'))
        (package / "__init__.py").write_bytes((package / "__init__.py").read_bytes())
        restarted = "operator-runner was upgraded: restarting"
        eventually(lambda: operator.lines(restarted), details=operator.log)
        kubectl.merge(KIND, "a", {"spec": {"sayThis": "more"}})
        wait_for_text(kubectl, operator, "hello more")
        assert operator.pid == pid
        assert len(operator.lines(restarted)) == 1
        assert not operator.lines("Reconciliation failed")
        assert operator.terminate() == 0
    finally:
        operator.kill()
