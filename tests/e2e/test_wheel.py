"""The built wheel is all that a user needs."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from operator_runner import __version__
from operator_runner.devcluster import Cluster
from tests.support.kubectl import Kubectl
from tests.support.operator import REPOSITORY, Operator
from tests.support.waiting import eventually

PROJECT = REPOSITORY / "tests" / "functional" / "project"
KIND = "echoes.test.example.com"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel and install it, with its dependencies, into an empty environment."""
    scratch = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--quiet"]
    options = ["--no-deps", "--no-build-isolation", f"--wheel-dir={scratch}"]
    subprocess.run([*pip, "wheel", *options, str(REPOSITORY)], check=True)
    (wheel,) = scratch.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", scratch / "venv"], check=True)
    pip[0] = str(scratch / "venv" / "bin" / "python")
    subprocess.run([*pip, "install", "--no-compile", str(wheel)], check=True)
    return scratch / "venv"


def test_the_wheel_contains_the_pins_of_the_local_cluster(environment: Path) -> None:
    """A user without a checkout can have a local cluster built."""
    packages = environment / "lib"
    (module,) = packages.glob(
        "python*/site-packages/operator_runner/devcluster/controlplane/go.mod"
    )
    assert "k8s.io/kubernetes" in module.read_text()
    assert (module.parent / "go.sum").is_file()


def test_the_wheel_contains_only_the_package(environment: Path) -> None:
    """The nginx operator, the examples and the tests stay in the repository."""
    (record,) = environment.glob("lib/python*/site-packages/operator_runner-*.dist-info/RECORD")
    folders = {line.partition("/")[0] for line in record.read_text().splitlines()}
    assert folders == {"..", "operator_runner", record.parent.name}


def test_the_wheel_contains_its_commit(environment: Path) -> None:
    """The metric of the build names the commit that the wheel was made from."""
    head = ["git", "-C", str(REPOSITORY), "rev-parse", "HEAD"]
    (file,) = environment.glob("lib/python*/site-packages/operator_runner/_commit")
    expected = subprocess.run(head, capture_output=True, text=True, check=True).stdout
    assert file.read_text() == expected


def test_the_wheel_contains_the_web_page(environment: Path) -> None:
    """Document, styles and scripts of `operator-runner ui` are data of the package."""
    source = REPOSITORY / "operator_runner" / "tools"
    files = [*source.glob("ui/static/*"), *source.glob("runs/static/*")]
    (packages,) = environment.glob("lib/python*/site-packages/operator_runner/tools")
    assert [file for file in files if not (packages / file.relative_to(source)).is_file()] == []
    assert len(files) > 5


def test_the_wheel_contains_both_programs(environment: Path) -> None:
    """Each prints its own name and the version that was built."""
    for name in ("operator-runner", "ansible-operator"):
        output = subprocess.run(
            [environment / "bin" / name, "version"], capture_output=True, text=True, check=True
        )
        assert name in output.stdout
        assert __version__ in output.stdout


@pytest.mark.slow
def test_the_wheel_runs_a_project(
    environment: Path, cluster: Cluster, kubectl: Kubectl, tmp_path: Path
) -> None:
    """Installed from the wheel, far from any checkout, the operator runs a role and reports it.

    It does so under the name that entry points of existing images call.
    """
    project = Path(shutil.copytree(PROJECT, tmp_path / "project"))
    # k8s_status is in the collection that the package contains.
    with (project / "roles/echo/tasks/main.yml").open("a") as role:
        role.write(
            "- operator_sdk.util.k8s_status:\n"
            "    api_version: test.example.com/v1\n"
            "    kind: Echo\n"
            "    name: '{{ ansible_operator_meta.name }}'\n"
            "    namespace: '{{ ansible_operator_meta.namespace }}'\n"
            "    status: {said: hello}\n"
        )
    cluster.exec(["kubectl", "apply", f"--filename={project / 'crd.yaml'}"])
    kubectl.wait_for_kinds(KIND)
    operator = Operator(
        project,
        cluster.kubeconfig,
        kubectl.namespace,
        tmp_path,
        {},
        program=environment / "bin" / "ansible-operator",
    )
    operator.start()
    try:
        kubectl.apply(
            {"apiVersion": "test.example.com/v1", "kind": "Echo", "metadata": {"name": "a"}}
        )
        eventually(
            lambda: (kubectl.get(KIND, "a") or {}).get("status", {}),
            lambda status: status.get("said") == "hello",
            details=operator.log,
        )
        assert kubectl.get("configmap", "a") is not None
    finally:
        operator.kill()
