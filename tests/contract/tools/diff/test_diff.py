"""`operator-runner diff` shows what a role would change, and writes nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from operator_runner.devcluster import Cluster
from tests.support import helm
from tests.support.kubectl import Kubectl
from tests.support.nginx import KIND, nginx
from tests.support.operator import REPOSITORY
from tests.support.scaffold import OPERATOR_RUNNER

PROJECT = Path(__file__).parent

CHART = """
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}}
data: {word: {{ .Values.word }}}
"""
SCRIPT = """
from kubernetes import client, config
config.load_kube_config()
namespace = config.list_kube_config_contexts()[1]["context"]["namespace"]
body = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="by-script"), data={"word": "third"})
client.CoreV1Api().create_namespaced_config_map(namespace, body)
"""
RELEASES = """
- name: Install by the module
  kubernetes.core.helm:
    release_name: by-module
    release_namespace: "{{ ansible_operator_meta.namespace }}"
    chart_ref: "{{ role_path }}/files/chart"
    values: {word: first}

- name: Install by the command
  ansible.builtin.command:
    cmd: helm upgrade --install by-command {{ role_path }}/files/chart --set word=second
  check_mode: false

- name: Upgrade what was installed before
  ansible.builtin.command: helm upgrade deployed {{ role_path }}/files/chart --set word=new
  check_mode: false

- name: Read the release
  ansible.builtin.command: helm get values by-command --output=json
  register: values
  check_mode: false

- name: Run a script
  ansible.builtin.command: python {{ role_path }}/files/script.py

- name: Run a script in check mode too
  ansible.builtin.command: python {{ role_path }}/files/script.py
  check_mode: false

- name: Post to the API server
  ansible.builtin.shell: curl --request POST --data '{}' https://example.com/

- name: Write what was read
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata:
        name: read-back
        namespace: "{{ ansible_operator_meta.namespace }}"
      data:
        word: "{{ (values.stdout | from_json).word }}"
"""


class Diff:
    """The command, with the kubectl of a user."""

    def __init__(self, kubeconfig: Path, cluster: Cluster, namespace: str) -> None:
        self._flags = [f"--kubeconfig={kubeconfig}", f"--namespace={namespace}", "--executor=cold"]
        path = f"{cluster.bin.parent / 'tools'}{os.pathsep}{os.environ['PATH']}"
        self._environment = {**os.environ, "PATH": path, "ANSIBLE_GATHERING": "explicit"}

    def add_to_path(self, *folders: Path) -> None:
        """Find programs in these folders first."""
        path = os.pathsep.join([*map(str, folders), self._environment["PATH"]])
        self._environment["PATH"] = path

    def __call__(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Run it to its end."""
        return subprocess.run(
            [OPERATOR_RUNNER, "diff", *args, *self._flags],
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def diff(control_plane: Path, control_plane_cluster: Cluster, kubectl: Kubectl) -> Diff:
    """Return the command for the namespace of the test."""
    return Diff(control_plane, control_plane_cluster, kubectl.namespace)


def test_the_objects_of_an_nginx_operator_are_shown_and_not_created(
    diff: Diff, kubectl: Kubectl
) -> None:
    """As a unified diff, with exit status 1. The kind is spelled as for kubectl."""
    kubectl("apply", f"--filename={REPOSITORY / 'crds'}")
    kubectl.wait_for_kinds(KIND)
    kubectl.apply(nginx(replicas=2))
    done = diff("NginxOperator.operator/web", f"--project={REPOSITORY}")
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    assert f"+++ apps/v1 Deployment {kubectl.namespace}/web" in lines
    assert "+  replicas: 2" in lines
    assert f"+++ v1 Service {kubectl.namespace}/web" in lines
    assert "1 of 1 resource with differences; objects: 2 created" in done.stderr
    assert kubectl.get("deployment", "web") is None
    resource = kubectl.get(KIND, "web")
    assert resource is not None
    assert "status" not in resource


def test_writes_of_all_clients_are_shown_and_other_tasks_are_named(
    diff: Diff, kubectl: Kubectl, tmp_path: Path
) -> None:
    """Modules, files of the run and commands without check mode; not other commands, and uri."""
    touched = tmp_path / "touched"
    labels = {"metadata": {"name": "mixed", "labels": {"role": "mixed"}}}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "unneeded"}}
    kubectl.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", **labels, "data": {"touched": str(touched)}},
        {**secret, "stringData": {"password": "very-secret"}},
    )
    done = diff("--all", f"--project={PROJECT}", "--output=json")
    assert done.returncode == 1, done.stderr
    (preview,) = json.loads(done.stdout)["items"]
    assert preview["error"] is None
    objects: dict[str, Any] = {each["name"]: each for each in preview["objects"]}
    assert {name: each["change"] for name, each in objects.items()} == {
        "by-kubectl": "created",
        "app": "created",
        "by-file": "created",
        "unneeded": "deleted",
    }
    assert objects["app"]["after"]["metadata"]["labels"] == {"read-back": "1"}
    assert objects["app"]["after"]["spec"]["replicas"] == 3
    assert "very-secret" not in done.stdout
    assert objects["unneeded"]["before"]["data"] == {"password": "***"}
    named = [each.partition(",")[0] for each in preview["notPreviewed"]]
    assert named == [
        "task Apply with kubectl in check mode (ansible.builtin.command)",
        "task Run a command on the host (ansible.builtin.command)",
        "task Call an address (ansible.builtin.uri)",
        "task Run a command in a container (kubernetes.core.k8s_exec)",
        "task Write a file on the host (ansible.builtin.copy)",
    ]
    places = [each.partition(", ")[2].partition(":")[0] for each in preview["notPreviewed"]]
    assert set(places) == {"roles/mixed/tasks/main.yml"}
    assert not touched.exists()
    assert kubectl.get("secret", "unneeded") is not None
    assert kubectl.get("configmap", "by-kubectl") is None

    kubectl("label", "configmap", "mixed", "role-")
    none = diff("--all", f"--project={PROJECT}")
    assert (none.returncode, none.stdout) == (0, ""), none.stderr
    of_kind = diff("configmaps", "--all-namespaces", f"--project={PROJECT}")
    assert (of_kind.returncode, of_kind.stdout) == (0, ""), of_kind.stderr
    unwatched = diff("secrets", "--all", f"--project={PROJECT}")
    assert unwatched.returncode == 2
    assert "secrets is secret, which is not in watches.yaml; it has configmap" in unwatched.stderr
    missing = diff("ConfigMap/none", f"--project={PROJECT}")
    assert missing.returncode == 2
    assert "does not exist" in missing.stderr


@pytest.mark.slow
def test_releases_of_helm_and_scripts_write_nothing(
    diff: Diff, kubectl: Kubectl, control_plane: Path, tmp_path: Path
) -> None:
    """By the module, the command, and a script that runs; others are named."""
    files = tmp_path / "roles" / "releases" / "files"
    chart = files / "chart"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("{apiVersion: v2, name: tried, version: 0.1.0}")
    (chart / "templates" / "map.yaml").write_text(CHART)
    (files / "script.py").write_text(SCRIPT)
    tasks = files.parent / "tasks"
    tasks.mkdir()
    (tasks / "main.yml").write_text(RELEASES)
    (tmp_path / "watches.yaml").write_text(
        "[{version: v1, kind: ConfigMap, role: releases, manageStatus: false,"
        " selector: {matchLabels: {role: releases}}}]"
    )
    labels = {"name": "wanted", "labels": {"role": "releases"}}
    kubectl.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": labels})
    where = (f"--namespace={kubectl.namespace}", f"--kubeconfig={control_plane}")
    subprocess.run(
        [helm.program(), "install", "deployed", chart, "--set=word=old", *where],
        check=True,
        capture_output=True,
    )
    diff.add_to_path(helm.program().parent, Path(sys.executable).parent)
    done = diff("--all", f"--project={tmp_path}", "--output=json")
    (preview,) = json.loads(done.stdout)["items"]
    assert (preview["error"], done.returncode) == (None, 1), done.stderr
    objects = {each["name"]: each for each in preview["objects"]}
    created = {
        name: each["after"]["data"]["word"]
        for name, each in objects.items()
        if each["kind"] == "ConfigMap" and each["change"] == "created"
    }
    assert created == {
        "by-module": "first",
        "by-command": "second",
        "by-script": "third",
        "read-back": "second",
    }
    word = {"path": "data.word", "before": "old", "after": "new"}
    assert objects["deployed"]["fields"] == [word]
    # helm writes each of them twice, in protobuf.
    for name in ("by-module.v1", "by-command.v1", "deployed.v2"):
        release = objects[f"sh.helm.release.v1.{name}"]["after"]
        assert release["metadata"]["labels"]["status"] == "deployed"
    assert [each.partition(",")[0] for each in preview["notPreviewed"]] == [
        "task Run a script (ansible.builtin.command)",
        "task Post to the API server (ansible.builtin.shell)",
    ]
    for name in ("by-module", "by-command", "by-script", "read-back"):
        assert kubectl.get("configmap", name) is None
    deployed = kubectl.get("configmap", "deployed")
    assert deployed is not None
    assert deployed["data"] == {"word": "old"}
    secrets = [each["metadata"]["name"] for each in kubectl.list("secrets")]
    assert secrets == ["sh.helm.release.v1.deployed.v1"]


def _watch_labelled(kubectl: Kubectl, project: Path, beside: str) -> None:
    """Create a ConfigMap, and a project that watches it and another kind."""
    (project / "roles" / "label" / "tasks").mkdir(parents=True)
    (project / "roles" / "label" / "tasks" / "main.yml").write_text("[]")
    (project / "watches.yaml").write_text(
        f"- {{{beside}, role: label}}\n"
        "- {version: v1, kind: ConfigMap, role: label, selector: {matchLabels: {role: label}}}\n"
    )
    labels = {"name": "labelled", "labels": {"role": "label"}}
    kubectl.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": labels})


def test_kinds_that_are_not_installed_are_named_and_the_others_are_previewed(
    diff: Diff, kubectl: Kubectl, tmp_path: Path
) -> None:
    """As with the roles of a branch that adds a kind; the exit status is that of the others."""
    _watch_labelled(
        kubectl, tmp_path, beside="group: missing.example.com, version: v1, kind: Later"
    )
    project = f"--project={tmp_path}"
    everything = diff("--all", project)
    assert everything.returncode == 0, everything.stderr
    assert "Warning: no kind Later in missing.example.com/v1: its CRD is missing" in (
        everything.stderr
    )
    assert "No differences, 1 resource" in everything.stderr
    one = diff("ConfigMap/labelled", project)
    heading = f"ConfigMap {kubectl.namespace}/labelled:"
    assert (one.returncode, one.stderr) == (0, f"{heading}\nNo differences, 1 resource\n")
    missing = diff("later", "--all", project)
    assert (missing.returncode, "its CRD is missing" in missing.stderr) == (2, True)


def test_kinds_that_the_user_may_not_list_are_errors_and_the_others_are_previewed(
    control_plane_cluster: Cluster, kubectl: Kubectl, tmp_path: Path
) -> None:
    """With the cure; the exit status is that of an error, and not one of a complete preview."""
    _watch_labelled(kubectl, tmp_path, beside="version: v1, kind: Secret")
    kubectl("create", "serviceaccount", "user")
    kubectl("create", "role", "user", "--verb=get,list", "--resource=configmaps")
    account = f"{kubectl.namespace}:user"
    kubectl("create", "rolebinding", "user", "--role=user", f"--serviceaccount={account}")
    kubectl.wait_for_permission(f"system:serviceaccount:{account}", "list", "configmaps")
    kubeconfig = kubectl.kubeconfig("user", tmp_path)
    diff = Diff(kubeconfig, control_plane_cluster, kubectl.namespace)
    done = diff("--all", f"--project={tmp_path}", "--output=json")
    assert done.returncode == 2, done.stderr
    [item] = json.loads(done.stdout)["items"]
    assert item["resource"]["name"] == "labelled"
    [error] = done.stderr.splitlines()
    assert 'cannot list resource "secrets"' in error
    cure = "; grant the permission to list secrets, or run diff in a Pod of the operator"
    assert error.endswith(cure)
