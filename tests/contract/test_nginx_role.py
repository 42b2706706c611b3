"""The nginx role on a real API server, with the testing kit: each run is one of the operator."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml

from operator_runner.config.watches import load
from operator_runner.devcluster import Cluster
from operator_runner.reconcile.variables import extra_vars
from operator_runner.testing import Outcome
from operator_runner.testing.reconciling import OperatorProcess, Reconcile
from tests.support import nginx as support
from tests.support.kubectl import Json, Kubectl
from tests.support.nginx import KIND
from tests.support.operator import REPOSITORY
from tests.support.waiting import eventually

ROLE = REPOSITORY / "roles" / "nginx"
OBJECTS_OF_0_0_2 = Path(__file__).with_name("nginx_operator_0.0.2.yaml")
OF_SERVICE = ("clusterIP", "clusterIPs")
"""Fields that differ between any two Services."""


@dataclass(frozen=True)
class Nginx:
    """A namespace with resources, and the operator to reconcile them.

    `start` starts another operator, with its kubeconfig.
    """

    kubectl: Kubectl
    kubeconfig: Path
    operator: OperatorProcess
    start: Callable[[str, Path], OperatorProcess]
    scratch: Path

    def resource(self, name: str = "web", **spec: Any) -> Json:
        """Apply the resource with exactly this spec."""
        self.kubectl.apply(support.nginx(name, **spec))
        return self.live(KIND, name)

    def live(self, kind: str, name: str = "web") -> Json:
        """Return an object that must exist."""
        found = self.kubectl.get(kind, name)
        assert found is not None, f"no {kind} {name}"
        return found

    def reconcile(self, name: str = "web") -> Outcome:
        """Reconcile the resource as it is."""
        body = support.nginx(name)
        del body["spec"]
        return Reconcile(self.operator, self.kubectl.namespace)(body)

    def succeed(self, name: str = "web", *, times: int = 1) -> int:
        """Reconcile, which must succeed; return how many objects were written."""
        written = 0
        for _ in range(times):
            outcome = self.reconcile(name)
            assert outcome.successful, outcome.output
            written += len([*outcome.created, *outcome.changed, *outcome.deleted])
        return written

    def fail(self, name: str = "web") -> str:
        """Reconcile, which must fail; return the message."""
        outcome = self.reconcile(name)
        assert not outcome.successful
        assert outcome.failure is not None
        return outcome.failure.message

    def owning_configmap(self, name: str) -> Json:
        """Create a ConfigMap to own something; return the owner reference to it."""
        self.kubectl("create", "configmap", name)
        uid = self.live("configmap", name)["metadata"]["uid"]
        return {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid}

    def degraded(self, name: str = "web") -> Json:
        """Return the condition OperatorDegraded."""
        return self.condition("OperatorDegraded", name)

    def condition(self, type_: str, name: str = "web") -> Json:
        """Return the only condition of a type."""
        conditions = self.live(KIND, name)["status"]["conditions"]
        found = [c for c in conditions if c["type"] == type_]
        assert len(found) == 1, conditions
        condition: Json = found[0]
        return condition

    def limited_to(self, user: str, *rules: Json) -> Nginx:
        """Return the same with an operator that may do this much in the namespace.

        And what the testing kit needs: it applies the resource, and lists Events.
        """
        rbac = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": user}}
        ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": user}
        kit = [rule(KIND, "get", "patch", "create"), rule("events", "list", "create", "patch")]
        self.kubectl.apply(
            {**rbac, "kind": "Role", "rules": [*rules, *kit]},
            {**rbac, "kind": "RoleBinding", "roleRef": ref, "subjects": [{**ref, "kind": "User"}]},
        )
        self.kubectl.wait_for_permission(user, "patch", KIND)
        config = yaml.safe_load(self.kubeconfig.read_text())
        for each in config["users"]:
            each["user"]["as"] = user
        path = self.scratch / f"{user}.kubeconfig"
        path.write_text(json.dumps(config))
        return replace(self, operator=self.start(user, path))


def rule(resource: str, *verbs: str) -> Json:
    """Return a rule for one resource, `plural.group`."""
    plural, _, group = resource.partition(".")
    return {"apiGroups": [group], "resources": [plural], "verbs": list(verbs)}


def owner_reference(resource: Json, *, version: str = "v1alpha2") -> Json:
    """Return the owner reference to the resource."""
    return {
        "apiVersion": f"operator.example.com/{version}",
        "kind": "NginxOperator",
        "name": resource["metadata"]["name"],
        "uid": resource["metadata"]["uid"],
    }


def some_deployment(name: str, *, owners: list[Json], replicas: int = 1) -> Json:
    """Return a Deployment with an nginx that the role did not make."""
    labels = {"app": "nginx"}
    old = {"name": "nginx", "image": "nginx:latest", "command": ["nginx"]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "ownerReferences": owners},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [old]}},
        },
    }


WRITE_STATUS = rule(f"nginxoperators/status.{KIND.partition('.')[2]}", "get", "patch")


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., OperatorProcess]]:
    """Give a function that returns a new operator; each takes seconds to start."""
    with ExitStack() as stack:

        def started(name: str, kubeconfig: Path, **environment: str) -> OperatorProcess:
            scratch = tmp_path_factory.mktemp(name)
            environment |= {"ANSIBLE_GATHERING": "explicit"}
            process = OperatorProcess(REPOSITORY, kubeconfig, scratch, (), environment)
            stack.callback(process.stop)
            return process

        yield started


@pytest.fixture(scope="module")
def operator(start: Callable[..., OperatorProcess], control_plane: Path) -> OperatorProcess:
    """Share the operator of the administrator."""
    return start("operator", control_plane)


@pytest.fixture(scope="module")
def crds(control_plane_cluster: Cluster) -> None:
    """Install the CRDs."""
    kubectl = Kubectl(control_plane_cluster.bin / "kubectl", "default")
    kubectl("apply", f"--filename={REPOSITORY / 'crds'}")
    kubectl.wait_for_kinds(KIND)


@pytest.fixture
def nginx(  # noqa: PLR0917 (pytest passes fixtures by name)
    crds: None,
    control_plane: Path,
    kubectl: Kubectl,
    operator: OperatorProcess,
    start: Callable[..., OperatorProcess],
    tmp_path: Path,
) -> Nginx:
    """Give a namespace where the resource is known."""
    del crds
    # Without it Pods are refused for a moment, which is shown in the status.
    kubectl.wait_for_account()
    return Nginx(kubectl, control_plane, operator, start, tmp_path)


def container(deployment: Json) -> Json:
    """Return the only container."""
    (only,) = deployment["spec"]["template"]["spec"]["containers"]
    found: Json = only
    return found


def is_settled(deployment: Json) -> bool:
    """Return true once the controller has made one Pod; without a node it gets no further."""
    reasons = {c["reason"] for c in deployment.get("status", {}).get("conditions", [])}
    return {"MinimumReplicasUnavailable", "ReplicaSetUpdated"} <= reasons


def listens_on(deployment: Json) -> list[str]:
    """Return the ports that the Pods' nginx.conf names."""
    annotations = deployment["spec"]["template"]["metadata"]["annotations"]
    return re.findall(r"listen (\d+);", annotations["operator.example.com/nginx.conf"])


def test_an_empty_spec_gives_the_defaults(nginx: Nginx) -> None:
    """One replica on port 8080 of the pinned image, behind a Service of the same name."""
    nginx.resource()
    nginx.succeed()
    deployment, service = nginx.live("deployment"), nginx.live("service")
    assert deployment["spec"]["replicas"] == 1
    assert container(deployment)["ports"] == [
        {"name": "nginx", "containerPort": 8080, "protocol": "TCP"}
    ]
    assert listens_on(deployment) == ["8080"]
    assert re.fullmatch(r"docker.io/library/nginx:\d+\.\d+\.\d+", container(deployment)["image"])
    (port,) = service["spec"]["ports"]
    assert (port["port"], port["targetPort"]) == (8080, "nginx")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()


def test_success_is_reported_in_the_condition(nginx: Nginx) -> None:
    """The condition OperatorDegraded is False, for this generation of the spec."""
    generation = nginx.resource(replicas=2)["metadata"]["generation"]
    nginx.succeed()
    condition = nginx.degraded()
    del condition["lastTransitionTime"]
    assert condition == {
        "type": "OperatorDegraded",
        "status": "False",
        "reason": "OperatorSucceeded",
        "message": "operator successfully reconciling",
        "observedGeneration": generation,
    }


def test_a_steady_resource_costs_no_write(nginx: Nginx) -> None:
    """Over five runs no task changes anything, and every resource version stays."""

    def versions() -> list[str]:
        kinds = (KIND, "deployment", "service")
        return [nginx.live(kind)["metadata"]["resourceVersion"] for kind in kinds]

    nginx.resource(ports=[{"containerPort": 8081}], forceRedploy="once")
    nginx.succeed()
    eventually(lambda: nginx.live("deployment"), is_settled)
    before = versions()
    assert nginx.succeed(times=5) == 0
    assert versions() == before
    annotations = nginx.live("deployment")["metadata"]["annotations"]
    assert annotations["deployment.kubernetes.io/revision"] == "1"


def test_fields_are_applied_and_unset_ones_have_defaults(nginx: Nginx) -> None:
    """Port and replicas are those of the spec; zero is kept, and an unset field has its default."""
    nginx.resource(ports=[{"containerPort": 80}], replicas=0)
    nginx.succeed()
    deployment = nginx.live("deployment")
    assert deployment["spec"]["replicas"] == 0
    assert container(deployment)["ports"][0]["containerPort"] == 80
    assert listens_on(deployment) == ["80"]
    assert nginx.live("service")["spec"]["ports"][0]["port"] == 80

    nginx.resource()
    nginx.succeed()
    deployment = nginx.live("deployment")
    assert deployment["spec"]["replicas"] == 1
    assert container(deployment)["ports"][0]["containerPort"] == 8080
    assert listens_on(deployment) == ["8080"]
    assert nginx.live("service")["spec"]["ports"][0]["port"] == 8080


def test_force_redploy_changes_the_pods_only(nginx: Nginx) -> None:
    """Another text means another Pod template and nothing else; braces in it are just text."""
    nginx.resource(forceRedploy="one")
    nginx.succeed()
    before = nginx.live("deployment")["spec"]
    nginx.resource(forceRedploy="{{ lookup('env', 'HOME') }}")
    nginx.succeed()
    after = nginx.live("deployment")["spec"]
    key = "operator.example.com/forceRedploy"
    assert before["template"]["metadata"]["annotations"].pop(key) == "one"
    assert after["template"]["metadata"]["annotations"].pop(key) == "{{ lookup('env', 'HOME') }}"
    assert after == before


EDITED: Json = {
    "metadata": {
        "labels": {"app.kubernetes.io/name": "other", "app.kubernetes.io/instance": None},
    },
    "spec": {
        "replicas": 7,
        "template": {
            "metadata": {"labels": {"added": "yes"}},
            "spec": {"containers": [{"name": "nginx", "image": "evil:1"}]},
        },
    },
}
ADDED: Json = {
    "spec": {
        "minReadySeconds": 60,
        "template": {
            "spec": {
                "nodeSelector": {"disk": "fast"},
                "initContainers": [{"name": "init", "image": "evil:1"}],
                "containers": [
                    {"name": "sidecar", "image": "evil:1"},
                    {
                        "name": "nginx",
                        "args": ["-v"],
                        "env": [{"name": "ADDED", "value": "yes"}],
                        "ports": [{"containerPort": 99}],
                    },
                ],
            }
        },
    },
}
REMOVED: Json = {
    "spec": {
        "template": {
            "metadata": {"annotations": {"operator.example.com/nginx.conf": "events {}"}},
            "spec": {
                "securityContext": None,
                "containers": [
                    {"name": "nginx", "command": None, "livenessProbe": None, "resources": None}
                ],
            },
        },
    },
}


def test_drift_of_the_deployment_is_repaired(nginx: Nginx) -> None:
    """Edits, additions and removals by hand in the Deployment are reverted."""
    nginx.resource()
    nginx.succeed()
    before = nginx.live("deployment")
    for patch in (EDITED, ADDED, REMOVED):
        text = json.dumps(patch)
        nginx.kubectl("patch", "deployment", "web", "--type=strategic", f"--patch={text}")
        assert nginx.live("deployment")["spec"] != before["spec"]
        nginx.succeed()
        after = nginx.live("deployment")
        assert after["spec"] == before["spec"]
        assert after["metadata"]["labels"] == before["metadata"]["labels"]


def test_foreign_labels_and_annotations_are_kept(nginx: Nginx) -> None:
    """Metadata of other tools on the Deployment is kept, and causes no write."""
    nginx.resource()
    nginx.succeed()
    nginx.kubectl("label", "deployment", "web", "team=a")
    nginx.kubectl("annotate", "deployment", "web", "note=b")
    assert nginx.succeed() == 0
    metadata = nginx.live("deployment")["metadata"]
    assert metadata["labels"]["team"] == "a"
    assert metadata["annotations"]["note"] == "b"


def test_foreign_metadata_of_the_service_is_kept(nginx: Nginx) -> None:
    """Labels, annotations, finalizers and owners of others survive a write of the Service."""
    nginx.resource()
    nginx.succeed()
    other = nginx.owning_configmap("other")
    metadata = nginx.live("service")["metadata"]
    theirs = {
        "labels": {"team": "a"},
        "annotations": {"external-dns.alpha.kubernetes.io/hostname": "web.example.com"},
        "finalizers": ["example.com/load-balancer"],
        "ownerReferences": [*metadata["ownerReferences"], other],
    }
    nginx.kubectl.merge("service", "web", {"metadata": theirs})
    assert nginx.succeed() == 0
    nginx.resource(ports=[{"containerPort": 8081}])
    assert nginx.succeed()
    service = nginx.live("service")
    assert [port["port"] for port in service["spec"]["ports"]] == [8081]
    assert service["metadata"]["labels"] == metadata["labels"] | theirs["labels"]
    for key in ("annotations", "finalizers", "ownerReferences"):
        assert service["metadata"][key] == theirs[key]
    nginx.kubectl.merge("service", "web", {"metadata": {"finalizers": None}})


def test_a_restart_by_kubectl_rolls_out_once(nginx: Nginx) -> None:
    """The annotation of `kubectl rollout restart` stays in the Pod template."""
    nginx.resource()
    nginx.succeed()
    nginx.kubectl("rollout", "restart", "deployment/web")
    restarted = nginx.live("deployment")["spec"]["template"]
    assert "kubectl.kubernetes.io/restartedAt" in restarted["metadata"]["annotations"]
    assert nginx.succeed(times=2) == 0
    assert nginx.live("deployment")["spec"]["template"] == restarted
    nginx.resource(forceRedploy="now")
    nginx.succeed()
    after = nginx.live("deployment")["spec"]["template"]["metadata"]["annotations"]
    key = "kubectl.kubernetes.io/restartedAt"
    assert after[key] == restarted["metadata"]["annotations"][key]


def test_no_write_of_others_is_lost(nginx: Nginx) -> None:
    """While another client keeps writing, each pass succeeds and each annotation stays."""
    nginx.resource()
    nginx.succeed()
    lost: list[Json] = []
    ended = threading.Event()

    def write() -> None:
        count = 0
        while not ended.is_set():
            for kind in ("deployment", "service"):
                seen = nginx.live(kind)["metadata"].get("annotations", {})
                if count and seen.get("count") != str(count):
                    lost.append(seen)
            count += 1
            nginx.kubectl("annotate", "--overwrite", "deployment,service", "web", f"count={count}")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for replicas in range(4):
            nginx.resource(replicas=replicas)
            nginx.succeed()
            assert nginx.live("deployment")["spec"]["replicas"] == replicas
    finally:
        ended.set()
        writer.join()
    assert lost == []


def test_a_deployment_of_another_owner_is_refused(nginx: Nginx) -> None:
    """Nothing is changed, the conditions name the owner; without it the next pass works."""
    generation = nginx.resource()["metadata"]["generation"]
    owner = nginx.owning_configmap("database")
    nginx.kubectl.apply(some_deployment("web", replicas=3, owners=[owner]))
    # The deployment controller has to be done with it.
    eventually(
        lambda: nginx.live("deployment")["status"], lambda now: now.get("unavailableReplicas")
    )
    before = nginx.live("deployment")["spec"]
    message = nginx.fail()
    assert f"Deployment {nginx.kubectl.namespace}/web does not belong to NginxOperator" in message
    assert "it is owned by ConfigMap database; rename one of the two" in message
    assert nginx.live("deployment")["spec"] == before
    assert nginx.live("deployment")["metadata"]["ownerReferences"] == [owner]
    assert nginx.kubectl.get("service", "web") is None
    condition = nginx.degraded()
    assert (condition["status"], condition["reason"]) == ("True", "NotOwned")
    assert message in condition["message"]
    assert condition["observedGeneration"] == generation
    available = nginx.condition("Available")
    assert (available["status"], available["reason"]) == ("False", "NotOwned")
    assert message in available["message"]
    nginx.kubectl("delete", "deployment", "web")
    nginx.succeed()
    assert nginx.live("deployment")["spec"]["replicas"] == 1
    assert nginx.condition("OperatorDegraded")["status"] == "False"


def test_a_service_without_an_owner_is_refused_until_it_is_handed_over(nginx: Nginx) -> None:
    """Not even the Deployment is created; with the owner reference the Service is the role's."""
    resource = nginx.resource()
    nginx.kubectl("create", "service", "clusterip", "web", "--tcp=5432")
    before = nginx.live("service")
    message = nginx.fail()
    assert f"Service {nginx.kubectl.namespace}/web does not belong to NginxOperator" in message
    assert "it has no owner" in message
    assert nginx.live("service") == before
    assert nginx.kubectl.get("deployment", "web") is None
    owners = {"ownerReferences": [owner_reference(resource)]}
    nginx.kubectl.merge("service", "web", {"metadata": owners})
    nginx.succeed()
    assert nginx.live("service")["spec"]["ports"][0]["port"] == 8080


def test_the_service_of_the_api_server_is_refused(nginx: Nginx) -> None:
    """A resource `kubernetes` in `default` changes nothing there."""
    there = replace(nginx, kubectl=replace(nginx.kubectl, namespace="default"))
    before = there.live("service", "kubernetes")
    there.resource("kubernetes")
    try:
        there.fail("kubernetes")
        assert there.degraded("kubernetes")["reason"] == "NotOwned"
        assert there.live("service", "kubernetes") == before
        assert there.kubectl.get("deployment", "kubernetes") is None
    finally:
        there.kubectl("delete", KIND, "kubernetes")


def test_objects_of_a_deleted_namesake_are_waited_for(nginx: Nginx) -> None:
    """Nothing is written and nothing has failed; later the role creates its own objects."""
    nginx.resource()
    nginx.succeed()
    nginx.kubectl.merge("deployment", "web", {"metadata": {"finalizers": ["example.com/hold"]}})
    first = nginx.live("deployment")
    nginx.kubectl("delete", KIND, "web")
    body = nginx.resource(replicas=2)
    eventually(lambda: nginx.kubectl.get("service", "web"), lambda found: found is None)
    eventually(lambda: nginx.live("deployment")["metadata"].get("deletionTimestamp"))
    outcome = nginx.reconcile()
    assert outcome.successful, outcome.output
    assert outcome.requeue_after is not None
    available = nginx.condition("Available")
    assert (available["status"], available["reason"]) == ("False", "FormerOwnerDeleting")
    assert f"Deployment {nginx.kubectl.namespace}/web of a deleted" in available["message"]
    assert nginx.degraded()["status"] == "False"
    assert nginx.live("deployment")["spec"] == first["spec"]
    nginx.kubectl.merge("deployment", "web", {"metadata": {"finalizers": None}})
    eventually(lambda: nginx.kubectl.get("deployment", "web"), lambda found: found is None)
    nginx.succeed()
    assert nginx.live("deployment")["metadata"]["ownerReferences"] == [owner_reference(body)]


def test_pods_that_do_not_serve_are_not_polled(nginx: Nginx) -> None:
    """Available names the awaited objects, and no run is requested: events start the next one."""
    nginx.resource()
    assert nginx.reconcile().requeue_after is None
    available = nginx.condition("Available")
    assert (available["status"], available["reason"]) == ("False", "DependentNotReady")
    assert "Deployment web is not ready" in available["message"]


def test_drift_of_the_service_is_repaired_with_the_same_address(nginx: Nginx) -> None:
    """Selector, type and ports are restored; the cluster IP is kept."""
    nginx.resource()
    nginx.succeed()
    before = nginx.live("service")["spec"]
    patch = {"type": "NodePort", "selector": {"added": "yes"}, "ports": [{"port": 1}]}
    nginx.kubectl.merge("service", "web", {"spec": patch})
    nginx.succeed()
    assert nginx.live("service")["spec"] == before


def test_a_deleted_deployment_is_recreated(nginx: Nginx) -> None:
    """A deleted Deployment is made again from the resource's settings."""
    nginx.resource(replicas=3)
    nginx.succeed()
    nginx.kubectl("delete", "deployment,service", "web")
    nginx.succeed()
    assert nginx.live("deployment")["spec"]["replicas"] == 3
    assert nginx.live("service")["spec"]["ports"]


def test_two_resources_in_one_namespace_are_independent(nginx: Nginx) -> None:
    """Neither the Deployment nor the Service of one selects the Pods of the other."""
    for name in ("one", "two"):
        nginx.resource(name)
        nginx.succeed(name)
    labels = {n: nginx.live("deployment", n)["spec"]["template"]["metadata"]["labels"]
              for n in ("one", "two")}  # fmt: skip
    for name, other in (("one", "two"), ("two", "one")):
        selectors = (
            nginx.live("deployment", name)["spec"]["selector"]["matchLabels"],
            nginx.live("service", name)["spec"]["selector"],
        )
        for selector in selectors:
            assert selector.items() <= labels[name].items()
            assert not selector.items() <= labels[other].items()


def test_an_operand_of_an_older_version_is_upgraded(nginx: Nginx) -> None:
    """A Deployment with another selector, image and command becomes today's, in place."""
    labels = {"app": "nginx"}
    owner = owner_reference(nginx.resource(), version="v1alpha1")
    nginx.kubectl.apply(some_deployment("web", owners=[owner]))
    uid = nginx.live("deployment")["metadata"]["uid"]
    nginx.succeed()
    upgraded = nginx.live("deployment")
    assert upgraded["metadata"]["uid"] == uid
    assert upgraded["metadata"]["ownerReferences"] == [owner]
    assert container(upgraded)["image"] != "nginx:latest"
    assert container(upgraded)["command"] != ["nginx"]
    pod_labels = upgraded["spec"]["template"]["metadata"]["labels"]
    assert labels.items() <= pod_labels.items()
    assert pod_labels["app.kubernetes.io/instance"] == "web"
    assert nginx.live("service")["spec"]["selector"].items() <= pod_labels.items()


def test_objects_of_0_0_2_become_those_of_a_new_resource(nginx: Nginx) -> None:
    """It wrote patches, as the manager of the Python client. No field is lost or doubled.

    The fields are the role's own afterwards: what a later spec leaves out goes, and additions of
    users too, except those to the metadata.
    """
    http = {"containerPort": 8080, "name": "http"}
    udp = {"containerPort": 8080, "protocol": "UDP"}
    host = {"containerPort": 9090, "hostPort": 9090}
    resource = nginx.resource(replicas=2, forceRedploy="a", ports=[http, udp, host])
    objects = list(yaml.safe_load_all(OBJECTS_OF_0_0_2.read_text()))
    for body in objects:
        body["metadata"]["ownerReferences"] = [owner_reference(resource)]
    create = ("create", "--field-manager=OpenAPI-Generator", "--filename=-")
    nginx.kubectl(*create, input_=yaml.safe_dump_all(objects))
    uids = {kind: nginx.live(kind)["metadata"]["uid"] for kind in ("deployment", "service")}
    nginx.kubectl("set", "env", "deployment/web", "ADDED=1")
    nginx.kubectl("label", "service", "web", "team=a")

    newer: Json = {"ports": [http, {"containerPort": 9091}]}
    nginx.resource(**newer)
    assert nginx.succeed() > 0
    assert nginx.succeed() == 0
    nginx.resource("fresh", **newer)
    nginx.succeed("fresh")
    for kind, uid in uids.items():
        upgraded, fresh = nginx.live(kind), nginx.live(kind, "fresh")
        assert upgraded["metadata"]["uid"] == uid
        specs = [
            {key: value for key, value in each["spec"].items() if key not in OF_SERVICE}
            for each in (upgraded, fresh)
        ]
        assert specs[0] == json.loads(json.dumps(specs[1]).replace('"fresh"', '"web"'))
        text = nginx.kubectl("get", kind, "web", "--show-managed-fields", "--output=json")
        fields = [
            f for f in json.loads(text)["metadata"]["managedFields"] if "f:spec" in f["fieldsV1"]
        ]
        assert [f["manager"] for f in fields] == ["nginxoperator.operator.example.com"]
    assert nginx.live("service")["metadata"]["labels"]["team"] == "a"


class MetricsServer(BaseHTTPRequestHandler):
    """Receives metrics in place of an operator."""

    received: ClassVar[list[Json]] = []

    def do_POST(self) -> None:
        self.received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.end_headers()


@pytest.fixture
def metrics_address() -> Iterator[str]:
    """Give the address of a server for metrics."""
    with ThreadingHTTPServer(("127.0.0.1", 0), MetricsServer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/metrics"
        server.shutdown()


def test_ansible_playbook_runs_the_role_without_an_operator(
    nginx: Nginx, tmp_path: Path, metrics_address: str
) -> None:
    """Nothing of an operator is needed but for metrics; the environment names image and user."""
    body = nginx.resource()
    (watch,) = load(REPOSITORY / "watches.yaml", {}).watches
    variables = tmp_path / "extravars.json"
    variables.write_text(json.dumps(extra_vars(body, watch, cleanup=False)))
    play = tmp_path / "play.yml"
    play.write_text(
        json.dumps([{"hosts": "localhost", "gather_facts": False, "roles": [str(ROLE)]}])
    )
    program = Path(sys.executable).parent / "ansible-playbook"
    environment = {
        "K8S_AUTH_KUBECONFIG": str(nginx.kubeconfig),
        "ANSIBLE_COLLECTIONS_PATH": str(REPOSITORY / "operator_runner" / "collections"),
        "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
        "RELATED_IMAGE_NGINX": "mirror.example/nginx:2",
        "NGINX_RUN_AS_USER": "",
        "OSDK_METRIC_ADDRESS": metrics_address,
    }
    done = subprocess.run(
        [program, "-i", "localhost,", "-c", "local", "-e", f"@{variables}", play],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    instance = {"namespace": nginx.kubectl.namespace, "name": "web"}
    sent = [(each["name"], each["labels"], each["gauge"]["set"]) for each in MetricsServer.received]
    assert sent == [
        ("nginx_desired_replicas", instance, 1),
        ("nginx_ready_replicas", instance, 0),
        ("nginx_info", instance | {"image": "mirror.example/nginx:2"}, 1),
    ]
    made = nginx.live("deployment")
    assert container(made)["image"] == "mirror.example/nginx:2"
    context = made["spec"]["template"]["spec"]["securityContext"]
    assert context["runAsNonRoot"] is True
    assert not context.keys() & {"runAsUser", "runAsGroup"}
    # Without an operator they have no owner.
    nginx.kubectl("delete", "deployment,service", "web")
    nginx.succeed()
    context = nginx.live("deployment")["spec"]["template"]["spec"]["securityContext"]
    assert (context["runAsUser"], context["runAsGroup"]) == (101, 101)


def test_the_pods_satisfy_the_restricted_standard(nginx: Nginx) -> None:
    """Pods come up where the strictest Pod Security Standard is enforced."""
    enforce = "pod-security.kubernetes.io/enforce=restricted"
    nginx.kubectl("label", "namespace", nginx.kubectl.namespace, enforce)
    nginx.resource(ports=[{"containerPort": 80}])
    nginx.succeed()
    eventually(lambda: nginx.kubectl.list("pods"), details=lambda: nginx.kubectl("get", "events"))


def test_the_shipped_rights_are_enough(nginx: Nginx) -> None:
    """With the rules of config/rbac and no more, the role creates, repairs and reports."""
    role = yaml.safe_load((REPOSITORY / "config" / "rbac" / "role.yaml").read_text())
    nginx = nginx.limited_to("operator", *role["rules"])
    nginx.resource()
    nginx.succeed()
    nginx.kubectl("set", "image", "deployment/web", "nginx=evil:1")
    nginx.kubectl("delete", "service", "web")
    assert nginx.succeed()
    assert container(nginx.live("deployment"))["image"] != "evil:1"
    assert nginx.degraded()["status"] == "False"


def test_an_upgrade_needs_no_right_to_delete(nginx: Nginx) -> None:
    """The owner reference keeps its version: OpenShift requires `delete` to change it."""
    role = yaml.safe_load((REPOSITORY / "config" / "rbac" / "role.yaml").read_text())
    rules = [
        {**each, "verbs": [v for v in each["verbs"] if v != "delete"]} for each in role["rules"]
    ]
    nginx = nginx.limited_to("operator", *rules)
    resource = nginx.resource()
    nginx.succeed()
    older = owner_reference(resource, version="v1alpha1")
    for kind in ("deployment", "service"):
        nginx.kubectl.merge(kind, "web", {"metadata": {"ownerReferences": [older]}})
        patch = json.dumps({"metadata": {"ownerReferences": [owner_reference(resource)]}})
        done = nginx.kubectl.run(
            "patch", kind, "web", "--as=operator", "--type=merge", f"--patch={patch}"
        )
        assert "cannot set an ownerRef on a resource you can't delete" in done.stderr
    nginx.resource(ports=[{"containerPort": 8081}])
    assert nginx.succeed()
    for kind in ("deployment", "service"):
        assert nginx.live(kind)["metadata"]["ownerReferences"] == [older]
    assert nginx.live("service")["spec"]["ports"][0]["port"] == 8081


def test_an_operand_that_cannot_be_read_or_written_is_reported(nginx: Nginx) -> None:
    """The condition has the reason of the task and what is forbidden, until the cause is fixed."""
    generation = nginx.resource()["metadata"]["generation"]
    reader = nginx.limited_to("reader", WRITE_STATUS)
    reader.fail()
    condition = nginx.degraded()
    assert (condition["status"], condition["reason"]) == ("True", "OperandDeploymentNotAvailable")
    assert condition["observedGeneration"] == generation
    assert 'deployments.apps "web" is forbidden: User "reader"' in condition["message"]
    reader.fail()
    assert nginx.degraded() == condition

    rules = [rule("deployments.apps", "get"), rule("services", "get")]
    nginx.limited_to("looker", WRITE_STATUS, *rules).fail()
    condition = nginx.degraded()
    assert (condition["status"], condition["reason"]) == ("True", "OperandDeploymentFailed")
    assert 'deployments.apps "web" is forbidden: User "looker"' in condition["message"]
    nginx.succeed()
    assert nginx.degraded()["status"] == "False"


def test_each_port_is_declared_and_answers(nginx: Nginx) -> None:
    """Deployment and Service have all ports by name, nginx listens on those of TCP."""
    nginx.resource(
        ports=[
            {"containerPort": 8080},
            {"containerPort": 9090, "name": "admin"},
            {"containerPort": 8443},
            {"containerPort": 8443, "protocol": "UDP"},
        ]
    )
    nginx.succeed()
    deployment = nginx.live("deployment")
    assert container(deployment)["ports"] == [
        {"name": "nginx", "containerPort": 8080, "protocol": "TCP"},
        {"name": "admin", "containerPort": 9090, "protocol": "TCP"},
        {"name": "tcp-8443", "containerPort": 8443, "protocol": "TCP"},
        {"name": "udp-8443", "containerPort": 8443, "protocol": "UDP"},
    ]
    assert listens_on(deployment) == ["8080", "9090", "8443"]
    assert container(deployment)["readinessProbe"]["httpGet"]["port"] == "nginx"
    ports = nginx.live("service")["spec"]["ports"]
    assert [(p["port"], p["protocol"], p["targetPort"]) for p in ports] == [
        (8080, "TCP", "nginx"),
        (9090, "TCP", "admin"),
        (8443, "TCP", "tcp-8443"),
        (8443, "UDP", "udp-8443"),
    ]
    assert nginx.succeed() == 0


def test_metrics_are_those_of_a_second_container(nginx: Nginx) -> None:
    """An exporter reads the status of nginx in its Pod, on a port that the PodMonitor selects."""
    nginx.resource(ports=[{"containerPort": 8090}], metrics=True)
    nginx.succeed()
    pods = nginx.live("deployment")["spec"]["template"]
    _, exporter = pods["spec"]["containers"]
    assert exporter["args"] == ["--nginx.scrape-uri=http://127.0.0.1:8090/stub_status"]
    assert "stub_status;" in pods["metadata"]["annotations"]["operator.example.com/nginx.conf"]
    file = REPOSITORY / "config" / "prometheus" / "operand.yaml"
    monitor = next(yaml.safe_load_all(file.read_text()))["spec"]
    (endpoint,) = monitor["podMetricsEndpoints"]
    (port,) = exporter["ports"]
    assert (port["name"], port["containerPort"]) == (endpoint["port"], 9113)
    assert monitor["selector"]["matchLabels"].items() <= pods["metadata"]["labels"].items()
    assert nginx.succeed() == 0

    nginx.resource(ports=[{"containerPort": 8090}])
    nginx.succeed()
    assert container(nginx.live("deployment"))["name"] == "nginx"


def test_the_old_pod_releases_its_host_port_first(nginx: Nginx) -> None:
    """With a host port the old Pod goes first: both could not run on one node."""
    nginx.resource(ports=[{"containerPort": 8080, "hostPort": 80, "hostIP": "127.0.0.1"}])
    nginx.succeed()
    deployment = nginx.live("deployment")
    (port,) = container(deployment)["ports"]
    assert (port["hostPort"], port["hostIP"]) == (80, "127.0.0.1")
    rolling = deployment["spec"]["strategy"]["rollingUpdate"]
    assert (rolling["maxSurge"], rolling["maxUnavailable"]) == (0, 1)


@pytest.mark.parametrize(
    ("ports", "complaint"),
    [
        (
            [{"containerPort": 1, "name": "a"}, {"containerPort": 2, "name": "a"}],
            'ports[1].name: Duplicate value: "a"',
        ),
        ([{"containerPort": 53, "protocol": "UDP"}], "no port with the protocol TCP"),
    ],
)
def test_rejected_ports_do_not_change_the_operand(
    nginx: Nginx, ports: list[Json], complaint: str
) -> None:
    """Ports that cannot be are reported, in the API server's words; nothing else changes."""
    nginx.resource()
    nginx.succeed()
    before = [nginx.live(kind)["spec"] for kind in ("deployment", "service")]
    nginx.resource(ports=ports, replicas=3)
    nginx.fail()
    condition = nginx.degraded()
    assert condition["reason"] == "OperandDeploymentFailed"
    assert complaint in condition["message"]
    assert [nginx.live(kind)["spec"] for kind in ("deployment", "service")] == before


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ({"ports": [{"containerPort": "http"}]}, "spec.ports[0].containerPort: Invalid value"),
        (
            {"ports": [{"containerPort": 65536}]},
            "spec.ports[0].containerPort in body should be less",
        ),
        ({"replicas": 1.5}, "spec.replicas: Invalid value"),
        (
            {"ports": [{"containerPort": port} for port in range(1, 252)]},
            "spec.ports: Too many: 251: must have at most 250 items",
        ),
        (
            {"ports": [{"containerPort": 9113}], "metrics": True},
            "port 9113 is that of the exporter",
        ),
        ({"forceRedploy": 1}, "spec.forceRedploy: Invalid value"),
        ({"forceRedeploy": "x"}, 'unknown field "spec.forceRedeploy"'),
    ],
)
def test_a_bad_spec_is_refused_by_the_api_server(nginx: Nginx, spec: Json, complaint: str) -> None:
    """The error names the invalid field."""
    body = support.nginx("bad", **spec)
    done = nginx.kubectl.run("create", "--filename=-", input_=json.dumps(body))
    assert done.returncode != 0
    assert complaint in done.stderr


@pytest.mark.parametrize("name", ["1st", "web.example", "a" * 64])
@pytest.mark.parametrize("version", ["v1alpha1", "v1alpha2"])
def test_a_name_that_a_service_cannot_have_is_refused(
    nginx: Nginx, version: str, name: str
) -> None:
    """The API server rejects the resource at once, in either version, with the reason."""
    body = support.nginx(name, version=version)
    done = nginx.kubectl.run("create", "--filename=-", input_=json.dumps(body))
    assert done.returncode != 0
    assert "metadata.name becomes the name of a Service" in done.stderr


def test_the_longest_name_works(nginx: Nginx) -> None:
    """A name of 63 characters is that of a Deployment, a Service and a label."""
    name = "a" * 62 + "9"
    nginx.resource(name)
    nginx.succeed(name)
    assert nginx.live("service", name)["spec"]["selector"]["app.kubernetes.io/instance"] == name


def test_an_older_resource_of_another_name_can_be_edited(nginx: Nginx) -> None:
    """A resource that was there before the rule takes edits and a status, and can be deleted."""
    rules = nginx.live("crd", KIND)["spec"]["versions"]
    for version in rules:
        del version["schema"]["openAPIV3Schema"]["x-kubernetes-validations"]
    nginx.kubectl.merge("crd", KIND, {"spec": {"versions": rules}})
    create = partial(nginx.kubectl.run, "create", "--filename=-")
    body = json.dumps(support.nginx("web.example"))
    eventually(lambda: create(input_=body).returncode, lambda code: code == 0)
    nginx.kubectl("apply", f"--filename={REPOSITORY / 'crds'}")
    refused = json.dumps(support.nginx("an.other"))
    eventually(lambda: create("--dry-run=server", input_=refused).returncode, bool)
    nginx.kubectl.merge(KIND, "web.example", {"spec": {"replicas": 2}})
    assert "web.example" in nginx.fail("web.example")
    assert nginx.degraded("web.example")["status"] == "True"
    nginx.kubectl("delete", KIND, "web.example")


def test_kubectl_prints_useful_columns(nginx: Nginx) -> None:
    """Columns for readiness, replicas, ports and age, with the defaults of an empty spec."""
    nginx.resource()
    nginx.succeed()
    nginx.resource("two", ports=[{"containerPort": 80}, {"containerPort": 53, "protocol": "UDP"}])
    nginx.succeed("two")
    shown = [line.split() for line in nginx.kubectl("get", KIND).splitlines()]
    assert shown[0] == ["NAME", "READY", "REPLICAS", "PORTS", "AGE"]
    assert [line[:4] for line in shown[1:]] == [
        ["two", "False", "1", "80/TCP,53/UDP"],
        ["web", "False", "1", "8080/TCP"],
    ]


def test_the_older_version_is_deprecated(nginx: Nginx) -> None:
    """The API server warns users of v1alpha1, with the version to use."""
    body = json.dumps(support.nginx("old", version="v1alpha1"))
    done = nginx.kubectl.run("create", "--dry-run=server", "--filename=-", input_=body)
    assert "v1alpha1 NginxOperator is deprecated; use operator.example.com/v1alpha2" in done.stderr
