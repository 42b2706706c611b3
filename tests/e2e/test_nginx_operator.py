"""The nginx operator as a user runs it: a resource is applied, and nginx answers."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path

import pytest

from tests.support.kubectl import Kubectl
from tests.support.nginx import KIND, V1ALPHA1, World, nginx
from tests.support.operator import Operator


@pytest.fixture
def world(kubectl: Kubectl, operator: Operator) -> World:
    """Give the running operator's world."""
    operator.start()
    return World(kubectl, operator)


def test_a_resource_makes_nginx_answer(world: World) -> None:
    """Create: the Deployment is available, the Service returns 200, and conditions are set."""
    world.kubectl.apply(nginx(replicas=1))
    world.wait_reconciled()
    world.wait_available(1)
    assert world.until(world.fetch, lambda status: status == 200)
    world.wait_reported_available()
    degraded = world.condition("OperatorDegraded")
    assert (degraded["status"], degraded["reason"]) == ("False", "OperatorSucceeded")
    assert degraded["message"] == "operator successfully reconciling"
    # Another run may be active.
    running = world.until(lambda: world.condition("Running"), lambda c: "ansibleResult" in c)
    assert running["ansibleResult"]["failures"] == 0
    assert world.condition("Failure")["status"] == "False"
    resource = world.kubectl.get(KIND, "web")
    assert resource is not None
    for kind in ("deployment", "service"):
        child = world.kubectl.get(kind, "web")
        assert child is not None
        owners = [owner["uid"] for owner in child["metadata"]["ownerReferences"]]
        assert owners == [resource["metadata"]["uid"]]

    for metric in ("nginx_desired_replicas", "nginx_ready_replicas", "nginx_info"):
        world.until(lambda metric=metric: world.operator.metric(metric, name="web"), (1.0).__eq__)

    def notes() -> list[str]:
        events = world.kubectl.list("events")
        return [e["message"] for e in events if e["involvedObject"]["kind"] == "NginxOperator"]

    world.until(lambda: any(note.startswith("Reconciled") for note in notes()))


def test_one_edit_causes_one_reconcile(world: World) -> None:
    """The operator's own writes do not wake it again, nor do other counts in a status.

    The readiness of the Pods does, their number, and a status that its controller writes late.
    """
    world.kubectl.apply(nginx(replicas=1))
    world.wait_reconciled()
    world.wait_available(1)
    world.kubectl.merge(KIND, "web", {"spec": {"replicas": 2}})
    world.wait_available(2)
    world.wait_reported_available()
    causes = [line["cause"] for line in world.operator.lines("Reconciled")]
    deployment = f"dependent: Deployment {world.kubectl.namespace}/web "
    readiness = (
        f"{deployment}became ",
        f"{deployment}status.readyReplicas ",
        f"{deployment}status is up to date",
    )
    parts = [part for cause in causes for part in cause.split("; ")]
    own = [part for part in parts if not part.startswith(readiness)]
    first, *others = own
    # It may have been there when the operator first looked.
    assert first in {"spec: created", "start"}
    assert others == ["spec: spec.replicas"]
    for metric in ("reconciles_total", "controller_runtime_reconcile_total"):
        # Another run may end meanwhile.
        world.until(partial(runs_that_only_the_metric_has, world, metric), lambda runs: not runs)


def runs_that_only_the_metric_has(world: World, metric: str) -> float:
    """Compare a metric with the runs in the log."""
    return world.operator.metric(metric) - len(world.operator.lines("Reconciled"))


def test_replicas_follow_the_spec(world: World) -> None:
    """Replicas follow the spec; 0 differs from unset, which is the default of 1."""
    world.kubectl.apply(nginx(replicas=3))
    world.wait_available(3)
    world.kubectl.merge(KIND, "web", {"spec": {"replicas": 0}})
    world.wait_available(0)
    assert world.until(world.pods, lambda pods: not pods) == set()
    world.kubectl.merge(KIND, "web", {"spec": {"replicas": None}})
    world.wait_available(1)


def test_a_changed_port_is_served(world: World) -> None:
    """The port is nginx's own and the Service's; unset it is 8080 again; 80 works as well.

    Written in v1alpha1, as users of 0.0.1 do.
    """
    world.kubectl.apply(nginx(version="v1alpha1", port=8081))
    for port, expected in ((8081, 8081), (80, 80), (None, 8080)):
        world.kubectl.merge(V1ALPHA1, "web", {"spec": {"port": port}})
        world.wait_reconciled()
        world.wait_available(1)
        service = world.kubectl.get("service", "web")
        deployment = world.kubectl.get("deployment", "web")
        assert service is not None
        assert deployment is not None
        assert service["spec"]["ports"][0]["port"] == expected
        container = deployment["spec"]["template"]["spec"]["containers"][0]
        assert container["ports"][0]["containerPort"] == expected
        assert world.until(world.fetch, lambda status: status == 200)


def test_both_ports_of_v1alpha2_answer(world: World) -> None:
    """Each port of a v1alpha2 answers, and a client of v1alpha1 leaves the second."""
    ports = [{"containerPort": 8080}, {"containerPort": 9090, "name": "admin"}]
    world.kubectl.apply(nginx(replicas=1))
    world.kubectl.merge(KIND, "web", {"spec": {"ports": ports}})
    world.kubectl.merge(V1ALPHA1, "web", {"spec": {"port": 8081}})
    world.wait_reconciled()
    world.wait_available(1)
    service = world.kubectl.get("service", "web")
    assert service is not None
    assert [port["port"] for port in service["spec"]["ports"]] == [8081, 9090]
    world.until(lambda: [world.fetch(index=index) for index in (0, 1)], [200, 200].__eq__)


def test_force_redeploy_rolls_the_pods_out(world: World) -> None:
    """Any change of forceRedploy replaces every Pod; the same value again replaces none."""
    world.kubectl.apply(nginx(replicas=2))
    world.wait_reconciled()
    world.wait_available(2)
    before = world.pods()
    world.kubectl.merge(KIND, "web", {"spec": {"forceRedploy": "now"}})
    world.wait_reconciled()
    world.wait_available(2)
    assert world.until(world.pods, lambda pods: len(pods) == 2).isdisjoint(before)


def test_a_deleted_deployment_is_recreated(world: World) -> None:
    """The Deployment is made again, with the settings of the resource."""
    world.kubectl.apply(nginx(replicas=2, version="v1alpha1", port=8088))
    world.wait_reconciled()
    first = world.kubectl.get("deployment", "web")
    assert first is not None
    world.kubectl("delete", "deployment", "web")
    world.wait_available(2)
    second = world.kubectl.get("deployment", "web")
    assert second is not None
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    assert second["spec"] == first["spec"]
    # Before and after it runs are caused by the Pods that are ready, or are not any more.
    deleted = f"Deployment {world.kubectl.namespace}/web deleted"
    world.until(
        lambda: "; ".join(line["cause"] for line in world.operator.lines("Reconciled")),
        lambda causes: deleted in causes,
    )


def test_edits_by_hand_are_reverted(world: World) -> None:
    """Image, labels, an added container and a scaled Deployment are reverted."""
    world.kubectl.apply(nginx())
    world.wait_reconciled()
    first = world.kubectl.get("deployment", "web")
    assert first is not None
    template = {
        "metadata": {"labels": {"by": "hand"}},
        "spec": {
            "containers": [
                {"name": "nginx", "image": "other:1"},
                {"name": "added", "image": "other:2"},
            ]
        },
    }
    patch = {"spec": {"replicas": 5, "template": template}}
    world.kubectl("patch", "deployment", "web", f"--patch={json.dumps(patch)}")
    world.until(
        lambda: world.kubectl.get("deployment", "web"),
        lambda now: now is not None and now["spec"] == first["spec"],
    )
    world.wait_available(1)


def test_two_resources_in_one_namespace_are_independent(world: World) -> None:
    """Each has its own Pods and answers by itself."""
    world.kubectl.apply(
        nginx("one", replicas=1), nginx("two", replicas=2, version="v1alpha1", port=8089)
    )
    world.wait_available(1, "one")
    world.wait_available(2, "two")
    assert len(world.pods("one")) == 1
    assert len(world.pods("two")) == 2
    assert world.until(lambda: (world.fetch("one"), world.fetch("two")), lambda s: s == (200, 200))


def directories(folder: Path, name: str) -> list[str]:
    """Return where directories of this name are, while others may be removed."""
    return [parent for parent, names, _ in os.walk(folder) if name in names]


def test_a_deleted_resource_takes_its_children_along(world: World) -> None:
    """Deployment, Service and Pods are deleted, and state and metrics of the resource too."""
    world.kubectl.apply(nginx())
    world.wait_reconciled()
    world.wait_available(1)
    assert directories(world.operator.scratch / "work", "web")
    world.kubectl("delete", KIND, "web")
    for kind in ("deployment", "service"):
        world.until(lambda kind=kind: world.kubectl.get(kind, "web"), lambda body: body is None)
    world.until(world.pods, lambda pods: not pods)
    world.until(lambda: directories(world.operator.scratch / "work", "web"), lambda left: not left)
    world.until(lambda: world.operator.metric("resource_created_at_seconds"), (0).__eq__)
    assert world.operator.metric("nginx_info") == 0


def test_a_bad_spec_is_refused_with_a_message(kubectl: Kubectl) -> None:
    """The API server itself names the field that is wrong."""
    done = kubectl.run(
        "apply", "--filename=-", input_=json.dumps(nginx(version="v1alpha1", port="high"))
    )
    assert done.returncode != 0
    assert "spec.port" in done.stderr
    assert "integer" in done.stderr


def test_a_steady_resource_costs_no_write(kubectl: Kubectl, operator: Operator) -> None:
    """Over five resyncs neither the resource nor its dependents get a new resourceVersion."""
    world = World(kubectl, operator)
    watches = operator.project / "watches.yaml"
    watches.write_text(watches.read_text().replace("reconcilePeriod: 10m", "reconcilePeriod: 1s"))
    operator.start()
    kubectl.apply(nginx())
    world.wait_reconciled()
    world.wait_available(1)
    world.wait_reported_available()

    def causes() -> list[str]:
        return [line["cause"].split(":")[0] for line in operator.lines("Reconciled")]

    # The run that reported it may not have ended, and the Pods may have become ready during it,
    # which causes another one.
    first = len(causes()) + 2
    world.until(causes, lambda found: len(found) >= first)
    before = world.versions()
    world.until(causes, lambda found: len(found) >= first + 5)
    assert world.versions() == before
    assert {*causes()[first:]} == {"period"}


def test_the_end_of_the_operator_touches_no_pod(world: World) -> None:
    """Stopping the operator, and starting it again, leaves the application alone."""
    world.kubectl.apply(nginx())
    world.wait_reconciled()
    world.wait_available(1)
    world.wait_reported_available()
    pods, versions = world.pods(), world.versions()
    assert world.operator.terminate() == 0
    world.until(world.fetch, (200).__eq__)
    world.operator.start()
    world.until(lambda: world.operator.metric("reconciles_total"), lambda n: n >= 1)
    assert (world.pods(), world.versions()) == (pods, versions)


def test_an_operand_of_an_older_role_is_upgraded(
    kubectl: Kubectl, operator: Operator, project: Path
) -> None:
    """A new version of the role updates existing Deployments at its first start."""
    world = World(kubectl, operator)
    template = project / "roles" / "nginx" / "templates" / "operand.yaml.j2"
    newer = template.read_text()
    template.write_text(newer.replace("revisionHistoryLimit: 3", "revisionHistoryLimit: 9"))
    operator.start()
    kubectl.apply(nginx())
    world.wait_reconciled()
    operator.terminate()
    template.write_text(newer)
    operator.start()
    world.until(
        lambda: kubectl.get("deployment", "web"),
        lambda body: body["spec"]["revisionHistoryLimit"] == 3,
    )
