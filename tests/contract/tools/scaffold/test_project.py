"""A fresh project, as kustomize, make, ansible-playbook and a real API server take it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from operator_runner.config.watches import load
from operator_runner.core.model import RunContent
from tests.support.kubectl import Json, Kubectl
from tests.support.operator import REPOSITORY
from tests.support.scaffold import OPERATOR_RUNNER, create_api, run
from tests.support.waiting import eventually

ANSIBLE = Path(sys.executable).parent / "ansible-playbook"
FOLDERS = [
    "crd",
    "default",
    "manager",
    "manifests",
    "network-policy",
    "prometheus",
    "rbac",
    "samples",
    "scorecard",
    "testing",
]


def rendered(kubectl: Kubectl, folder: Path) -> dict[tuple[str, str], Json]:
    documents = yaml.safe_load_all(kubectl("kustomize", str(folder)))
    return {(d["kind"], d["metadata"]["name"]): d for d in documents}


def make(root: Path, kubectl: Kubectl, kubeconfig: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["make", *arguments, f"KUBECTL={kubectl.program}", f"OPERATOR_RUNNER={OPERATOR_RUNNER}"],
        cwd=root,
        env=os.environ | {"KUBECONFIG": str(kubeconfig)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_kustomization_renders_with_kubectl(
    kubectl: Kubectl, made: Path, folder: str
) -> None:
    """The kustomize of kubectl is enough: no file is sought outside of a folder's root."""
    assert rendered(kubectl, made / "config" / folder)


def test_every_kustomization_is_tested(made: Path) -> None:
    """All folders with a kustomization are those of the test above."""
    found = {
        str(f.parent.relative_to(made / "config"))
        for f in made.glob("config/**/kustomization.yaml")
    }
    assert found == set(FOLDERS)


def test_scaffolded_objects_have_the_usual_names(kubectl: Kubectl, made: Path) -> None:
    """The objects are those of ansible-operator."""
    objects = rendered(kubectl, made / "config" / "default")
    kinds = [f"{kind}-{who}-role" for kind in ("memcached", "proxy", "batch")
             for who in ("admin", "editor", "viewer")]  # fmt: skip
    prefix = "cache-operator-"
    assert set(objects) == {
        ("Namespace", "cache-operator-system"),
        ("CustomResourceDefinition", "memcacheds.cache.scaffold.test"),
        ("CustomResourceDefinition", "proxies.cache.scaffold.test"),
        ("CustomResourceDefinition", "batches.cache.scaffold.test"),
        ("ServiceAccount", prefix + "controller-manager"),
        ("Role", prefix + "leader-election-role"),
        ("RoleBinding", prefix + "leader-election-rolebinding"),
        ("ClusterRole", prefix + "manager-role"),
        ("ClusterRoleBinding", prefix + "manager-rolebinding"),
        ("ClusterRole", prefix + "metrics-auth-role"),
        ("ClusterRoleBinding", prefix + "metrics-auth-rolebinding"),
        ("ClusterRole", prefix + "metrics-reader"),
        ("Service", prefix + "controller-manager-metrics-service"),
        ("Deployment", prefix + "controller-manager"),
        *(("ClusterRole", prefix + name) for name in kinds),
    }
    pod = objects["Deployment", prefix + "controller-manager"]["spec"]["template"]
    (manager,) = pod["spec"]["containers"]
    assert manager["args"] == [
        "--leader-elect",
        "--leader-election-id=cache-operator",
        "--health-probe-bind-address=:6789",
        "--ansible-log-events=lines",
        "--metrics-bind-address=:8443",
        "--metrics-secure",
        "--metrics-require-rbac",
    ]
    assert manager["resources"] == {
        "limits": {"cpu": "500m", "memory": "768Mi"},
        "requests": {"cpu": "10m", "memory": "256Mi"},
    }
    assert manager["env"] == [{"name": "ANSIBLE_GATHERING", "value": "explicit"}]
    assert pod["spec"]["terminationGracePeriodSeconds"] == 10
    assert pod["metadata"]["labels"]["control-plane"] == "controller-manager"


def test_the_runner_loads_its_watches(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Roles and playbooks exist at the paths of watches.yaml, and there are no warnings."""
    monkeypatch.chdir(made)
    loaded = load(Path("watches.yaml"), {})
    assert [watch.gvk.kind for watch in loaded.watches] == ["Memcached", "Proxy", "Batch"]
    assert all(isinstance(watch.content, RunContent) for watch in loaded.watches)
    assert loaded.warnings == ()


def test_playbooks_pass_the_syntax_check(made: Path) -> None:
    """ansible-playbook accepts every playbook of the project and of molecule."""
    plays = [
        *made.glob("playbooks/*.yml"),
        *(f for f in made.glob("molecule/*/*.yml") if _is_playbook(f)),
    ]
    assert len(plays) == 10
    done = subprocess.run(
        [ANSIBLE, "--syntax-check", *plays],
        cwd=made,
        env=os.environ | {"ANSIBLE_ROLES_PATH": str(made / "roles")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def _is_playbook(path: Path) -> bool:
    content: Any = yaml.safe_load(path.read_text())
    return isinstance(content, list) and all(
        {"hosts", "ansible.builtin.import_playbook"} & set(play) for play in content
    )


def test_make_installs_and_removes(kubectl: Kubectl, control_plane: Path, made: Path) -> None:
    """`make deploy` installs the image and edits no file; `undeploy` deletes it."""
    before = {f: f.read_bytes() for f in (made / "config").rglob("*") if f.is_file()}
    namespace, manager = "cache-operator-system", "cache-operator-controller-manager"
    make(made, kubectl, control_plane, "deploy", "IMG=registry.local:5000/team/cache:v1.2")
    there = Kubectl(kubectl.program, namespace)
    deployment = there.get("deployment", manager)
    assert deployment is not None
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.local:5000/team/cache:v1.2"
    assert {f: f.read_bytes() for f in (made / "config").rglob("*") if f.is_file()} == before
    make(made, kubectl, control_plane, "undeploy")
    assert there.get("deployment", manager) is None
    assert there.get("crd", "memcacheds.cache.scaffold.test") is not None
    make(made, kubectl, control_plane, "undeploy", "ARGS=--with-crds --yes")
    assert there.get("crd", "memcacheds.cache.scaffold.test") is None


def test_make_reports_missing_tools(made: Path) -> None:
    """No variable of the Makefile is undefined, and a missing tool is named with a hint."""
    targets = re.findall(r"^([a-z-]+):.* ## ", (made / "Makefile").read_text(), re.MULTILINE)
    assert {"run", "install", "deploy", "docker-build", "bundle-build", "catalog-build"} <= {
        *targets
    }
    done = subprocess.run(
        ["make", "--warn-undefined-variables", "--dry-run", *targets],
        cwd=made,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "undefined variable" not in done.stderr
    missing = subprocess.run(
        ["make", "bundle", "OPERATOR_RUNNER=/nowhere/operator-runner", "KUBECTL=true"],
        cwd=made,
        capture_output=True,
        text=True,
        check=False,
    )
    assert missing.returncode != 0
    assert "make OPERATOR_RUNNER=/path/to/it" in missing.stderr


def test_a_fresh_project_passes_its_rbac_check(
    made: Path, kubectl: Kubectl, control_plane: Path
) -> None:
    """The runner has its permissions; those of roles are unknown until requests are recorded."""
    output = make(made, kubectl, control_plane, "rbac-check")
    assert "The granted rules include those of the runner." in output
    files = run(made, "rbac", "--check=config/rbac", "--check=config/manager")
    assert files.returncode == 0, files.stdout


def test_a_cluster_scoped_kind_has_its_events(
    made: Path, kubectl: Kubectl, control_plane: Path, tmp_path: Path
) -> None:
    """They are in the namespace `default`, independent of the namespace of kustomize."""
    copy = Path(shutil.copytree(made, tmp_path / "copy"))
    for crd in (copy / "config/crd/bases").iterdir():
        crd.write_text(crd.read_text().replace("scope: Namespaced", "scope: Cluster"))
    (copy / "config/rbac/requests.yaml").write_text("[]\n")
    make(copy, kubectl, control_plane, "manifests")
    assert "are the required ones" in make(copy, kubectl, control_plane, "rbac-check")
    rbac = [
        body
        for body in rendered(kubectl, copy / "config" / "default").values()
        if body["kind"] in {"ClusterRole", "ClusterRoleBinding"}
    ]
    try:
        kubectl.apply(*rbac)
        account = "system:serviceaccount:cache-operator-system:cache-operator-controller-manager"
        can_create = ("auth", "can-i", "create", "events.events.k8s.io", "--namespace=default")
        eventually(
            lambda: kubectl.run(*can_create, f"--as={account}").stdout,
            lambda answer: answer.strip() == "yes",
        )
    finally:
        for body in rbac:
            kubectl("delete", body["kind"], body["metadata"]["name"], "--ignore-not-found")


def test_a_permission_that_the_runner_lacks_is_found(made: Path, tmp_path: Path) -> None:
    """The check fails without a recording too."""
    copy = Path(shutil.copytree(made, tmp_path / "copy"))
    role = copy / "config/rbac/leader_election_role.yaml"
    role.write_text(role.read_text().replace("- update", "- list"))
    done = run(copy, "rbac", "--check=config/rbac", "--check=config/manager")
    assert done.returncode == 1
    lease = "leases.coordination.k8s.io named cache-operator in the operator's namespace"
    assert done.stdout == f"missing: update {lease}: --leader-elect\n"


def test_roles_are_not_reduced_without_a_recording(
    made: Path, kubectl: Kubectl, tmp_path: Path
) -> None:
    """`make manifests` prints how to record; after that it writes the expected rules."""
    copy = Path(shutil.copytree(made, tmp_path / "copy"))
    before = (copy / "config/rbac/role.yaml").read_text()
    tools = [f"OPERATOR_RUNNER={OPERATOR_RUNNER}", f"KUBECTL={kubectl.program}"]
    make_ = ["make", "manifests", "rbac-check", *tools]
    done = subprocess.run(make_, cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "make run ARGS=--record-requests=config/rbac/requests.yaml" in done.stderr
    assert (copy / "config/rbac/role.yaml").read_text() == before
    (copy / "config/rbac/requests.yaml").write_text(
        "- {by: Memcached.cache.scaffold.test, resource: pods, namespace: own, verbs: [get]}\n"
    )
    done = subprocess.run(make_, cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "The granted rules are the required ones." in done.stdout
    create_api(copy, "Later", "--generate-role")
    rules = yaml.safe_load((copy / "config/rbac/role.yaml").read_text())["rules"]
    assert ["laters", "laters/status", "laters/finalizers"] in [r["resources"] for r in rules]


def test_a_pytest_of_another_environment_is_reported_with_the_solution(made: Path) -> None:
    """Such as that of the machine, when pipx has installed operator-runner."""
    command = ["make", "test-roles", "PYTEST=false"]
    done = subprocess.run(command, cwd=made, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "false cannot import operator_runner.testing. Install it" in done.stderr
    assert "pipx install --force '.[testing]'" in done.stderr


def test_programs_beside_operator_runner_are_found(made: Path, tmp_path: Path) -> None:
    """Pipx puts a link to operator-runner on the PATH, and neither pytest nor ansible-config."""
    program = tmp_path / "operator-runner"
    program.symlink_to(Path(sys.executable).with_name("operator-runner"))
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    command = ["make", "test-roles", "ARGS=--version"]
    done = subprocess.run(command, cwd=made, env=path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_dry_run_creates_nothing(made: Path, kubectl: Kubectl, control_plane: Path) -> None:
    """All manifests, with the image, are accepted by kubectl."""
    # Another test may have deployed the project.
    kubectl("delete", "namespace", "cache-operator-system", "--ignore-not-found")
    output = make(made, kubectl, control_plane, "dry-run", "IMG=registry.local/cache:v1")
    assert "deployment.apps/cache-operator-controller-manager created (dry run)" in output
    assert kubectl.get("namespace", "cache-operator-system") is None


def test_the_role_may_use_volumes(made: Path) -> None:
    """Objects that roles often create are allowed, volumes included."""
    rules = yaml.safe_load((made / "config/rbac/role.yaml").read_text())["rules"]
    assert "persistentvolumeclaims" in rules[0]["resources"]


def test_the_wheel_has_the_templates(tmp_path: Path) -> None:
    """Every template is in the wheel, those of hidden files too."""
    command = [sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, f"--wheel-dir={tmp_path}", str(REPOSITORY)], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    templates = REPOSITORY / "operator_runner" / "tools" / "scaffold" / "templates"
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    expected = {str(f.relative_to(REPOSITORY)) for f in templates.rglob("*") if f.is_file()}
    assert "operator_runner/tools/scaffold/templates/project/.gitignore.j2" in expected
    assert expected <= packed
