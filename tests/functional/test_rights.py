"""The nginx operator under exactly the rights of config/: enough for its whole life, and needed."""

from __future__ import annotations

import json
import secrets
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml

from operator_runner.devcluster import Cluster
from operator_runner.proxy.permission_log import read
from operator_runner.tools.rbac.manager_deployment import find_manager
from tests.support.kubectl import Json, Kubectl
from tests.support.nginx import KIND, World, installed_with, nginx
from tests.support.operator import REPOSITORY, Operator, copy_project
from tests.support.waiting import eventually

CRD = "CustomResourceDefinition"
ECHO = "echoes.test.example.com"
SYSTEM = "nginx-operator-system"
ACCOUNT = "nginx-operator-controller-manager"
ROLE = "nginx-operator-manager-role"
RECORDED = REPOSITORY / "config" / "rbac" / "requests.yaml"
RUNNER = Path(sys.executable).parent / "operator-runner"


@dataclass(frozen=True)
class Installed:
    """The operator's process, whose account has what config/ grants; metrics are protected."""

    operator: Operator
    world: World
    system: Kubectl
    objects: list[Json]
    recorded: Path
    metrics: str
    """Address of the metrics."""

    def count(self, code: str) -> int:
        """Return how many requests the API server has answered with a status."""
        token = self.system.token("reader")
        headers = {"Authorization": f"Bearer {token}"}
        request = urllib.request.Request(f"https://{self.metrics}/metrics", headers=headers)
        context = ssl._create_unverified_context()  # noqa: SLF001 the certificate is made at the start
        with urllib.request.urlopen(request, context=context, timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        counted = [
            float(line.rpartition(" ")[2])
            for line in lines
            if line.startswith("rest_client_requests_total") and f'code="{code}"' in line
        ]
        return int(sum(counted))

    @contextmanager
    def without(self, group: str, resource: str, verb: str) -> Iterator[None]:
        """Take one verb away from the operator inside the block."""
        role = next(b for b in self.objects if b["metadata"]["name"] == ROLE)
        (rule,) = (
            rule
            for rule in role["rules"]
            if rule["apiGroups"] == [group] and resource in rule["resources"]
        )
        less = [*(one for one in role["rules"] if one != rule)]
        verbs = [one for one in rule["verbs"] if one != verb]
        less += [rule | {"verbs": verbs}] if verbs else []
        self._set(less)
        try:
            yield
        finally:
            self._set(role["rules"])

    def _set(self, rules: list[Json]) -> None:
        self.system(
            "patch", "clusterrole", ROLE, "--type=merge", f"--patch={json.dumps({'rules': rules})}"
        )


def rendered(kubectl: Kubectl, folder: Path) -> list[Json]:
    """Return what config/default installs with the component config/metrics, without the CRD."""
    return [body for body in installed_with("metrics", kubectl, folder) if body["kind"] != CRD]


@pytest.fixture(scope="module")
def installed(
    control_plane_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installed]:
    """Install all but the Deployment, whose process runs here with the same arguments."""
    scratch = tmp_path_factory.mktemp("rights")
    system = Kubectl(control_plane_cluster.bin / "kubectl", SYSTEM)
    system("delete", "crd", KIND, "--ignore-not-found")
    system("apply", f"--filename={REPOSITORY / 'crds'}")
    system.wait_for_kinds(KIND)
    system.wait_not_terminating()
    objects = rendered(system, scratch)
    system(
        "apply",
        "--filename=-",
        input_=yaml.safe_dump_all(o for o in objects if o["kind"] != "Deployment"),
    )
    system("create", "serviceaccount", "reader")
    system(
        "create", "clusterrolebinding", "reader", "--clusterrole=nginx-operator-metrics-reader",
        f"--serviceaccount={SYSTEM}:reader",
    )  # fmt: skip
    kubectl = replace(system, namespace=f"rights-{secrets.token_hex(3)}")
    kubectl("create", "namespace", kubectl.namespace)
    operator = Operator(
        copy_project(scratch / "project"), system.kubeconfig(ACCOUNT, scratch), "", scratch, {}
    )
    args = find_manager(objects).args  # type: ignore[union-attr]
    recorded = scratch / "requests.yaml"
    ours = [arg for arg in args if "bind-address" not in arg]
    operator.start(*ours, f"--record-requests={recorded}", "--webhook-port=0")
    try:
        yield Installed(
            operator, World(kubectl, operator), system, objects, recorded, operator.metrics_address
        )
    finally:
        operator.kill()
        text = yaml.safe_dump_all(objects)
        system("delete", "--filename=-", "--wait=false", "--ignore-not-found", input_=text)
        system("delete", f"crd/{KIND}", "clusterrolebinding/reader")


def test_the_recorded_permissions_suffice_for_the_whole_life(installed: Installed) -> None:
    """Created, edited, repaired, failing, deleted: nothing is refused, and all of it is recorded.

    If the recording differs, record it again: see docs/rbac.md.
    """
    world, kubectl = installed.world, installed.world.kubectl
    before, logged = installed.count("403"), len(installed.operator.log())
    kubectl.apply(nginx())
    world.wait_reconciled()
    kubectl.merge(KIND, "web", {"spec": {"replicas": 2}})
    world.wait_reconciled()
    kubectl("delete", "deployment", "web")
    world.until(lambda: kubectl.get("deployment", "web"))
    kubectl.merge("service", "web", {"spec": {"sessionAffinity": "ClientIP"}})
    world.until(
        lambda: kubectl.get("service", "web"), lambda s: s["spec"]["sessionAffinity"] == "None"
    )
    kubectl.merge(KIND, "web", {"spec": {"ports": [{"containerPort": 53, "protocol": "UDP"}]}})
    world.until(lambda: world.condition("OperatorDegraded"), lambda c: c["status"] == "True")
    kubectl.merge(KIND, "web", {"spec": {"ports": None}})
    world.wait_reconciled()
    kubectl("delete", KIND, "web", "--wait=false")
    world.until(lambda: kubectl.get("deployment", "web"), lambda body: body is None)
    assert {event["type"] for event in kubectl.list("events.v1.events.k8s.io")} >= {"Warning"}
    assert installed.system.list("leases.coordination.k8s.io")
    assert installed.count("200") > 0
    assert installed.count("403") == before
    assert "forbidden" not in installed.operator.log()[logged:].lower()
    world.until(lambda: read(installed.recorded), read(RECORDED).__eq__)


@pytest.mark.parametrize(
    ("group", "resource", "verb"),
    [
        ("operator.example.com", "nginxoperators/status", "patch"),
        ("apps", "deployments", "patch"),
        ("", "services", "get"),
        ("events.k8s.io", "events", "create"),
    ],
)
def test_each_right_is_needed(installed: Installed, group: str, resource: str, verb: str) -> None:
    """A sample of them: without it the API server rejects requests of the operator."""
    world, name = installed.world, f"no-{secrets.token_hex(3)}"
    before = installed.count("403")
    with installed.without(group, resource, verb):
        # Permissions to create, change and report it are recorded.
        world.kubectl.apply(nginx(name))
        world.until(
            lambda: world.kubectl.get("deployment", name) or installed.count("403") > before
        )
        world.kubectl.merge(KIND, name, {"spec": {"replicas": 3}})
        world.until(lambda: installed.count("403"), lambda count: count > before)
    world.wait_reconciled(name)
    world.kubectl("delete", KIND, name, "--wait=false")


def test_rendered_manifests_are_checked(installed: Installed) -> None:
    """`operator-runner rbac --check -` reports nothing; without the metrics' role it does."""
    every = yaml.safe_dump_all(installed.objects)
    done = rbac(REPOSITORY, "--check=-", input_=every)
    assert (done.returncode, done.stdout) == (0, "The granted rules are the required ones.\n"), (
        done.stderr
    )
    bare = yaml.safe_dump_all(
        body for body in installed.objects if "metrics-auth" not in body["metadata"]["name"]
    )
    done = rbac(REPOSITORY, "--check=-", input_=bare)
    assert done.returncode == 1
    assert (
        "missing: create tokenreviews.authentication.k8s.io: --metrics-require-rbac" in done.stdout
    )


def test_the_permissions_of_a_recording_suffice(
    kubectl: Kubectl,
    project: Path,
    make_operator: Callable[[str], Operator],
    tmp_path: Path,
) -> None:
    """A project with a finalizer and one namespace: recorded, derived, bound, and then enough."""
    recorded = tmp_path / "requests.yaml"
    operator = make_operator("recorded").start(f"--record-requests={recorded}")
    life(kubectl, operator)
    assert operator.terminate() == 0
    # The namespace `default` has a fixed name; the note in it is named after the resource.
    assert {right.namespace for right in read(recorded)} == {"own", "default"}

    manager = tmp_path / "manager.yaml"
    manager.write_text(yaml.safe_dump(deployment(kubectl.namespace)))
    done = rbac(
        project, f"--recorded={recorded}", f"--crds={project / 'crd.yaml'}", f"--manager={manager}"
    )
    assert done.returncode == 0, done.stderr
    kubectl.run("delete", "rolebinding", "manager-rolebinding", "--namespace=default")
    grant(kubectl, done.stdout)
    user = f"system:serviceaccount:{kubectl.namespace}:controller-manager"
    kubectl.wait_for_permission(user, "list", ECHO)
    replace(kubectl, namespace="default").wait_for_permission(user, "get", "configmaps")
    operator = Operator(
        project,
        kubectl.kubeconfig("controller-manager", tmp_path),
        kubectl.namespace,
        tmp_path,
        {},
    )
    operator.start()
    try:
        life(kubectl, operator)
        assert operator.metric("rest_client_requests_total", code="403") == 0
    finally:
        operator.kill()


def grant(kubectl: Kubectl, manifests: str) -> None:
    """Apply what `operator-runner rbac` has derived, to an account `controller-manager`."""
    for body in yaml.safe_load_all(manifests):
        body["metadata"]["namespace"] = body["metadata"]["namespace"].replace(
            "system", kubectl.namespace
        )
        for subject in body.get("subjects", ()):
            subject["namespace"] = kubectl.namespace
        bound = replace(kubectl, namespace=body["metadata"]["namespace"])
        bound.apply(body)
    kubectl("create", "serviceaccount", "controller-manager")


def life(kubectl: Kubectl, operator: Operator) -> None:
    """Make a resource, edit it, and delete it, which runs the role of the finalizer."""
    kubectl.apply(
        {
            "apiVersion": "test.example.com/v1",
            "kind": "Echo",
            "metadata": {"name": "e"},
            "spec": {"sayThis": "a"},
        }
    )

    def wait_for_log(text: str) -> None:
        eventually(
            lambda: (kubectl.get("configmap", "e") or {}).get("data"),
            lambda data: data == {"text": f"hello {text}"},
            details=operator.log,
        )

    wait_for_log("a")
    kubectl.merge(ECHO, "e", {"spec": {"sayThis": "b"}})
    wait_for_log("b")
    kubectl("delete", ECHO, "e", "--wait=false")
    eventually(lambda: kubectl.get(ECHO, "e"), lambda body: body is None, details=operator.log)
    # The note that it has left: a role that found one would patch it.
    note = f"{kubectl.namespace}-e"
    replace(kubectl, namespace="default")("delete", "configmap", note)


def deployment(namespace: str, *args: str) -> Json:
    """Return the Deployment of an operator of one namespace with these arguments."""
    env = [{"name": "WATCH_NAMESPACE", "value": namespace}]
    spec = {
        "serviceAccountName": "controller-manager",
        "containers": [{"name": "manager", "env": env, "args": list(args)}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "manager", "namespace": namespace},
        "spec": {"template": {"spec": spec}},
    }


def rbac(project: Path, *args: str, input_: str = "") -> subprocess.CompletedProcess[str]:
    """Run `operator-runner rbac` in a project."""
    return subprocess.run(
        [RUNNER, "rbac", *args],
        cwd=project,
        input=input_,
        capture_output=True,
        text=True,
        check=False,
    )
