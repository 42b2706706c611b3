"""The condition Available of the nginx operator follows its Pods, whose kubelet the test plays."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml

from operator_runner.core.model import Json
from operator_runner.devcluster import Cluster
from operator_runner.reconcile.annotations import (
    HANDLED_ANNOTATION,
    REQUEST_ANNOTATION,
    annotations_of,
)
from tests.functional.test_readiness import set_ready
from tests.support.kubectl import Kubectl
from tests.support.nginx import KIND, World, nginx
from tests.support.operator import REPOSITORY, Operator, copy_project
from tests.support.runner_cli import RunnerCli

INSTANCE = "app.kubernetes.io/instance=web"


@pytest.fixture
def world(
    control_plane: Path, control_plane_cluster: Cluster, kubectl: Kubectl, tmp_path: Path
) -> Iterator[World]:
    """Start the nginx operator, without the webhook of its older version."""
    project = copy_project(tmp_path / "nginx")
    (entry,) = yaml.safe_load((project / "watches.yaml").read_text())
    del entry["conversion"]
    (project / "watches.yaml").write_text(json.dumps([entry]))
    control_plane_cluster.exec(["kubectl", "apply", f"--filename={REPOSITORY / 'crds'}"])
    kubectl.wait_for_kinds(KIND)
    operator = Operator(project, control_plane, kubectl.namespace, tmp_path, {})
    yield World(kubectl, operator.start())
    operator.kill()
    # With a remaining resource, lists need the webhook of the next operator.
    kubectl("delete", "crd", KIND)


def is_handled(body: Json | None, *, request: str) -> bool:
    """Return whether the run that was requested has ended."""
    handled = annotations_of(body or {"metadata": {}}).get(HANDLED_ANNOTATION, "{}")
    return bool(json.loads(handled).get("id") == request)


def available(world: World) -> tuple[str, str]:
    found = world.condition("Available")
    return str(found.get("status")), str(found.get("reason"))


@pytest.mark.parametrize("runs", [10, pytest.param(100, marks=pytest.mark.slow)])
def test_an_autoscaler_owns_the_replicas(world: World, runs: int) -> None:
    """That of Kubernetes scales the resource; further runs write nothing, and a file keeps it."""
    world.kubectl.apply(nginx())
    target = {key: nginx()[key] for key in ("apiVersion", "kind")}
    metric = {"type": "Utilization", "averageUtilization": 50}
    autoscaler: Json = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web"},
        "spec": {
            "scaleTargetRef": {**target, "name": "web"},
            "minReplicas": 3,
            "maxReplicas": 5,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": metric}}],
        },
    }
    world.kubectl.apply(autoscaler)

    def deployment() -> Json:
        return world.kubectl.get("deployment", "web") or {"spec": {}}

    written = world.until(deployment, lambda found: found["spec"].get("replicas") == 3)
    world.kubectl.apply(nginx())
    for number in range(runs):
        request = f"{number}"
        world.kubectl("annotate", KIND, "web", f"{REQUEST_ANNOTATION}={request}", "--overwrite")
        world.until(lambda: world.kubectl.get(KIND, "web"), partial(is_handled, request=request))
    assert deployment()["metadata"]["generation"] == written["metadata"]["generation"]
    scale = json.loads(world.kubectl("get", KIND, "web", "--subresource=scale", "--output=json"))
    assert (scale["spec"]["replicas"], scale["status"]["replicas"]) == (3, 3)
    pods = world.kubectl.list("pods", scale["status"]["selector"])
    assert len(pods) == 3


def test_available_follows_the_pods(world: World) -> None:
    """It turns true when they are ready, and false with the reason when one crashes later.

    No run is a poll.
    """
    world.kubectl.apply(nginx(replicas=1))
    (pod,) = world.until(
        lambda: world.kubectl.list("pods", INSTANCE), lambda found: len(found) == 1
    )
    name = pod["metadata"]["name"]
    world.until(lambda: available(world)[0], "False".__eq__)
    set_ready(world.kubectl, name, "True")
    world.until(lambda: available(world), ("True", "DependentsReady").__eq__)
    shown = world.kubectl.get(KIND, "web") or {}
    assert (shown["status"]["replicas"], shown["status"]["ports"]) == (1, "8080/TCP")
    container = {
        "name": "nginx",
        "image": "nginx:broken",
        "imageID": "",
        "ready": False,
        "restartCount": 3,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 1, "reason": "Error", "message": "bad conf"}},
    }
    ready = {"type": "Ready", "status": "False"}
    status = {"phase": "Running", "conditions": [ready], "containerStatuses": [container]}
    patch = f"--patch={json.dumps({'status': status})}"
    world.kubectl("patch", "pod", name, "--subresource=status", "--type=merge", patch)
    world.until(lambda: available(world), ("False", "ContainerCrashes").__eq__)
    message = world.condition("Available")["message"]
    assert "Deployment web is not ready: container nginx" in message
    assert "bad conf" in message
    set_ready(world.kubectl, name, "True")
    world.until(lambda: available(world), ("True", "DependentsReady").__eq__)
    causes = "; ".join(line["cause"] for line in world.operator.lines("Reconciled"))
    assert f"Deployment {world.kubectl.namespace}/web" in causes
    assert "requeue_after" not in causes


def test_the_metric_of_ready_replicas_follows_each_pod(world: World) -> None:
    """It does so too while the Deployment stays ready, or not ready."""
    world.kubectl.apply(nginx(replicas=3))
    pods = world.until(lambda: world.kubectl.list("pods", INSTANCE), lambda found: len(found) == 3)
    ready = 0
    for status in ("True", "False"):
        for pod in pods:
            set_ready(world.kubectl, pod["metadata"]["name"], status)
            ready += 1 if status == "True" else -1
            metric = partial(world.operator.metric, "nginx_ready_replicas", name="web")
            world.until(metric, float(ready).__eq__)


def test_an_edit_is_one_write_for_each_object(world: World, control_plane: Path) -> None:
    """The role reads its Deployment once, and writes without a dry run, and without other reads.

    Only a new resource is checked first for objects of others.
    """
    cli = RunnerCli(control_plane, world.kubectl.namespace)
    work_dir = f"--work-dir={world.operator.scratch / 'work'}"

    def requests(run: int) -> list[str]:
        """Return the requests for objects of a run, the newest is 0, without discovery."""
        runs = json.loads(cli("runs", "nginxoperator/web", work_dir, "-o", "json"))["items"]
        shown = json.loads(cli("runs", "show", runs[run]["id"], work_dir, "-o", "json"))
        paths = [(r["method"], r["path"].partition("?")[0].split("/")) for r in shown["requests"]]
        return [f"{method} {path[-2]}" for method, path in paths if path[-1] == "web"]

    kinds = ("deployments", "services")
    checked = [f"{verb} {kind}" for kind in kinds for verb in ("GET", "PATCH")]
    written = [f"PATCH {kind}" for kind in kinds]
    world.kubectl.apply(nginx())
    world.wait_reconciled()
    assert requests(-1) == ["GET deployments", *checked, *written]
    world.kubectl.apply(nginx(forceRedploy="once"))
    world.wait_reconciled()
    assert requests(0) == ["GET deployments", *written]


def test_a_failed_image_is_replaced_by_the_last_good_one(world: World) -> None:
    """A new operator brings an image whose Pods do not become ready; a later image is taken.

    The failed image is not tried again until forceRedploy changes.
    """

    def deployment() -> Json:
        return world.kubectl.get("deployment", "web") or {}

    def image_of(body: Json) -> str:
        return str(body["spec"]["template"]["spec"]["containers"][0]["image"])

    def degraded() -> tuple[str, str]:
        found = world.condition("OperatorDegraded")
        return str(found.get("status")), str(found.get("reason"))

    def upgrade(image: str) -> None:
        world.operator.terminate()
        world.operator.environment["RELATED_IMAGE_NGINX"] = image
        world.operator.start()

    def make_ready(image: str) -> None:
        """Have the Pods of an image ready, as kubelets would."""

        def is_good(body: Json | None) -> bool:
            for pod in world.kubectl.list("pods", INSTANCE):
                if pod["spec"]["containers"][0]["image"] == image:
                    set_ready(world.kubectl, pod["metadata"]["name"], "True")
            return body is not None and body.get("status", {}).get("lastGoodImage") == image

        world.until(lambda: world.kubectl.get(KIND, "web"), is_good)

    upgrade("nginx:good")
    world.kubectl.apply(nginx(replicas=2))
    make_ready("nginx:good")
    # Another manager's field, which the role does not set.
    hasty = {key: deployment()[key] for key in ("apiVersion", "kind")}
    hasty |= {"metadata": {"name": "web"}, "spec": {"progressDeadlineSeconds": 3}}
    apply = ("apply", "--server-side", "--field-manager=policy", "--filename=-")
    world.kubectl(*apply, input_=json.dumps(hasty))

    upgrade("nginx:bad")
    world.until(degraded, ("True", "RolledBack").__eq__)
    assert (
        "nginx:bad did not become ready; Pods have nginx:good"
        in (world.condition("OperatorDegraded")["message"])
    )
    assert image_of(deployment()) == "nginx:good"
    world.until(lambda: available(world), ("True", "DependentsReady").__eq__)
    returned = deployment()["metadata"]["generation"]
    world.kubectl("annotate", KIND, "web", f"{REQUEST_ANNOTATION}=again")
    world.until(lambda: world.kubectl.get(KIND, "web"), partial(is_handled, request="again"))
    assert deployment()["metadata"]["generation"] == returned

    world.kubectl.apply(nginx(replicas=2, forceRedploy="again"))
    world.until(lambda: image_of(deployment()), "nginx:bad".__eq__)
    world.until(lambda: image_of(deployment()), "nginx:good".__eq__)

    hasty["spec"]["progressDeadlineSeconds"] = 600
    world.kubectl(*apply, input_=json.dumps(hasty))
    upgrade("nginx:better")
    make_ready("nginx:better")
    world.until(degraded, ("False", "OperatorSucceeded").__eq__)
    assert "operator.example.com/failedImage" not in annotations_of(deployment())


def test_a_former_deployment_with_a_finalizer_is_awaited_less_and_less_often(world: World) -> None:
    """The period grows with the time that the deletion has lasted; then the operand is written."""
    former = {
        "apiVersion": "operator.example.com/v1alpha2",
        "kind": "NginxOperator",
        "name": "web",
        "uid": str(uuid.uuid4()),
    }
    labels = {"app": "former"}
    world.kubectl.apply(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {
                "name": "web",
                "ownerReferences": [former],
                "finalizers": ["test.example.com/stuck"],
            },
            "spec": {
                "replicas": 0,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [{"name": "nginx", "image": "nginx"}]},
                },
            },
        },
        nginx(replicas=0),
    )

    def seconds() -> int:
        found = re.search(r"run again in (\d+)s$", world.condition("Running").get("message", ""))
        return int(found[1]) if found else 0

    world.until(seconds, lambda found: found >= 10)
    shown = world.kubectl.get(KIND, "web") or {}
    assert available(world) == ("False", "FormerOwnerDeleting")
    assert world.condition("OperatorDegraded")["status"] == "False"
    patch = '--patch={"metadata": {"finalizers": null}}'
    world.kubectl("patch", "deployment", "web", "--type=merge", patch)
    world.until(
        lambda: world.kubectl.get("deployment", "web") or {},
        lambda found: (
            found.get("metadata", {}).get("ownerReferences", [{}])[0].get("uid")
            == shown["metadata"]["uid"]
        ),
    )
