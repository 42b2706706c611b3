"""docs/commands.md: each command of the right column exists, and the safe ones are executed."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from operator_runner.cli import main
from operator_runner.devcluster import Cluster
from tests.support.kubectl import Kubectl
from tests.support.nginx import KIND
from tests.support.operator import REPOSITORY
from tests.support.session import USE_VENV, Session

PAGE = REPOSITORY / "docs" / "commands.md"
PROJECT = (
    "config",
    "crds",
    "roles",
    "releases",
    "watches.yaml",
    "Makefile",
    "pyproject.toml",
)

ELSEWHERE = {
    "make build": "e2e/test_wheel.py",
    "make demo": "e2e/test_demo.py",
    "make demo-down": "e2e/test_demo.py",
    "make docker-build IMG=registry.example.com/nginx-operator:v0.1": "e2e/test_image.py",
    "make docker-push IMG=registry.example.com/nginx-operator:v0.1": "contract/test_make.py",
    "make image": "e2e/test_image.py",
    "make image CONTAINER_TOOL=podman": "e2e/test_image.py",
    "make bundle-validate": "e2e/test_olm.py",
    "make bundle-build": "contract/test_make.py",
    "make bundle-push": "contract/test_make.py",
    "make catalog-build": "contract/test_make.py",
    "make catalog-push": "contract/test_make.py",
    "make olm-demo": "e2e/test_olm.py",
    "make olm-demo-down": "e2e/test_olm.py",
    "make run": "e2e/test_doc_commands.py",
    "make undeploy": "functional/test_undeploy.py",
    "make undeploy ARGS=--with-crds": "functional/test_undeploy.py",
    "make deploy IMG=...": "functional/test_undeploy.py",
    "operator-runner why NginxOperator/cluster": "functional/test_past_runs.py",
    "operator-runner reconcile NginxOperator/cluster --wait": "functional/"
    "test_suspend_and_reconcile.py",
    "operator-runner suspend NginxOperator/cluster": "functional/test_suspend_and_reconcile.py",
    "operator-runner resume NginxOperator/cluster": "functional/test_suspend_and_reconcile.py",
    "operator-runner tree NginxOperator/cluster": "functional/test_get_and_tree.py",
    "operator-runner diff NginxOperator/cluster": "contract/tools/diff/test_diff.py",
    "operator-runner runs": "functional/test_runs.py",
    "operator-runner runs logs NginxOperator/cluster": "functional/test_runs.py",
    "operator-runner cluster down": "e2e/test_readme.py",
    "operator-runner cluster load ARCHIVE": "e2e/test_local_cluster.py",
    "operator-runner cluster status": "e2e/test_local_cluster.py",
    "operator-runner cluster up": "e2e/test_local_cluster.py",
    "operator-runner cluster up --control-plane-only": "e2e/test_readme.py",
    "operator-runner cluster olm up": "e2e/test_olm.py",
    "operator-runner cluster olm serve FOLDER": "e2e/test_olm.py",
    'eval "$(operator-runner cluster env)"': "e2e/test_readme.py",
    "kubectl apply -f config/storage-migration/in-tree.yaml": "unit/tools/storage_migration",
    "kubectl delete subscription,csv --all -n NAMESPACE": "e2e/test_olm.py",
    "kubectl wait --for=condition=Available nginxoperators/cluster": "e2e/test_doc_commands.py",
}
"""Commands that need a node, a registry or minutes, and the test that shows them."""

NEVER = {"make test", "make vet"}
"""The section of the test, and the commands before it."""


def _commands() -> list[str]:
    """Return the commands of the right columns, in the order of the page."""
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    cells = [row.strip("| ").split("|")[-1] for row in rows]
    spans = [span for cell in cells for span in re.findall(r"`([^`]+)`", cell)]
    found = [s for s in spans if re.match(r"(make|operator-runner|kubectl|eval) ", s)]
    return list(dict.fromkeys(found))


COMMANDS = _commands()


def test_every_target_is_there() -> None:
    """The Makefile has each target that the page names."""
    targets = set(
        re.findall(r"^\.PHONY: (\S+)", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    )
    named = {shlex.split(c)[1] for c in COMMANDS if c.startswith("make ")}
    assert named - targets == set()


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("operator-runner ")])
def test_every_command_and_flag_is_there(command: str) -> None:
    """`operator-runner` has each command of the page, and its flags."""
    words = shlex.split(command)[1:]
    at: click.Command = main
    while isinstance(at, click.Group) and words:
        at = at.commands[words.pop(0)]
    flags = {flag for option in at.params for flag in option.opts}
    assert {w.partition("=")[0] for w in words if w.startswith("-")} - flags == set()


@pytest.mark.parametrize("test", sorted(set(ELSEWHERE.values())))
def test_the_named_tests_exist(test: str) -> None:
    """Each test that is named exists, and nothing is listed that the page does not have."""
    assert (REPOSITORY / "tests" / test).exists()
    assert {c for c, name in ELSEWHERE.items() if name == test} <= set(COMMANDS)


@pytest.fixture
def shell(
    control_plane_cluster: Cluster, kubectl: Kubectl, control_plane: Path, tmp_path: Path
) -> Iterator[Session]:
    """Give a shell in a copy of the checkout, for a new namespace of the control plane."""
    checkout = tmp_path / "checkout"
    for name in PROJECT:
        source = REPOSITORY / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, checkout / name)
    (checkout / ".venv").symlink_to(Path(sys.prefix))
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_bytes(control_plane.read_bytes())
    environment = {"KUBECONFIG": str(kubeconfig), "KUBE_EDITOR": "true"}
    # Placeholders of the page are replaced.
    prepared = {
        "make ": f"make {shlex.join(USE_VENV)} ",
        "IMG=...": "IMG=registry.example.com/nginx-operator:v0.1",
        "operator-runner init": "mkdir -p ../new && cd ../new && operator-runner init",
        "operator-runner create": "cd ../new && operator-runner create",
    }
    with Session(checkout, environment, prepared) as shell:
        tools = f"{control_plane_cluster.home.tools}:{Path(sys.executable).parent}"
        shell.run(f'export PATH="{tools}:$PATH"')
        shell.run(f"kubectl config set-context --current --namespace={kubectl.namespace}")
        yield shell


def test_read_only_commands_are_executed(shell: Session, kubectl: Kubectl) -> None:
    """One after the other, in a copy of the checkout, on a real API server."""
    safe = [command for command in COMMANDS if command not in ELSEWHERE.keys() | NEVER]
    assert "make install" in safe
    # Objects that other tests use are removed last.
    for command in sorted(safe, key=lambda command: "uninstall" in command):
        shell.run(f"( {command} )")
        if command == "make install":
            kubectl.wait_for_kinds(KIND)


def test_deploy_without_prometheus_installs_everything_else(
    shell: Session, kubectl: Kubectl
) -> None:
    """The kinds that are not known are named, with a hint; all the rest is installed."""
    switched_on = "sed -i 's/^# components: /components: /' config/default/kustomization.yaml"
    shell.run(switched_on)
    # Another test may have deleted it.
    Kubectl(kubectl.program, "nginx-operator-system").wait_not_terminating()
    status, output = shell.attempt("make deploy IMG=...")
    assert status != 0
    assert 'no matches for kind "ServiceMonitor"' in output
    assert "comment ../prometheus out in config/default/kustomization.yaml" in output
    shell.run("kubectl get deployment -n nginx-operator-system nginx-operator-controller-manager")
    shell.run("kubectl delete namespace nginx-operator-system --wait=false")
