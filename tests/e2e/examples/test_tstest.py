"""The example TsTest: a Deployment or Jobs at times, and the two versions of its API."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from operator_runner.devcluster import Cluster
from tests.support.examples import Example, running
from tests.support.kubectl import Json, Kubectl
from tests.support.waiting import eventually

KIND = "tstests.stable.example.com"
V1BETA1 = "tstests.v1beta1.stable.example.com"


def tstest(name: str = "web", version: str = "v1", **spec: Any) -> Json:
    return {
        "apiVersion": f"stable.example.com/{version}",
        "kind": "TsTest",
        "metadata": {"name": name},
        "spec": spec,
    }


@pytest.fixture(scope="module")
def early(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Create a resource before its CRD exists; return the error of kubectl."""
    kubectl = Kubectl(cluster.bin / "kubectl", "default")
    # An earlier test of this cluster may have had the kind.
    cache = f"--cache-dir={tmp_path_factory.mktemp('cache')}"
    return kubectl.run("create", "--filename=-", cache, input_=json.dumps(tstest())).stderr


@pytest.fixture(scope="module")
def example(
    early: str, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Example]:
    """Run the operator, with the image of the example on the node."""
    del early
    with running("tstest", cluster, tmp_path_factory.mktemp("tstest")) as example:
        example.load_image()
        yield example


def names(kubectl: Kubectl, kind: str) -> list[str]:
    return sorted(body["metadata"]["name"] for body in kubectl.list(kind))


def wait_ready(kubectl: Kubectl, deployment: str, replicas: int, example: Example) -> None:
    """Wait until a Deployment has this number of ready Pods."""
    eventually(
        lambda: (kubectl.get("deployment", deployment) or {}).get("status", {}),
        lambda status: status.get("readyReplicas", 0) == replicas == status.get("replicas", 0),
        seconds=180,
        details=example.operator.log,
    )


def test_a_resource_cannot_be_created_before_its_crd(early: str) -> None:
    """`kubectl create` fails: the API server does not have the kind yet."""
    assert 'no matches for kind "TsTest" in version "stable.example.com/v1"' in early


def test_a_resource_is_created_scaled_updated_and_deleted(
    example: Example, kubectl: Kubectl
) -> None:
    """Create, read in both versions and with columns, scale, update, delete."""
    log: Callable[[], str] = example.operator.log
    kubectl.apply(tstest(image="operator-runner.local/tstest:1"))
    wait_ready(kubectl, "web", 1, example)
    kubectl("scale", "ts/web", "--replicas=2")
    wait_ready(kubectl, "web", 2, example)

    shown = eventually(
        lambda: [line.split() for line in kubectl("get", "ts").splitlines()],
        lambda lines: lines[1][1:3] == ["2", "2"],
        details=log,
    )
    assert shown[0] == ["NAME", "SCHEDULE", "DESIRED", "READY", "LAST", "SCHEDULE", "AGE"]
    status = (kubectl.get(KIND, "web") or {})["status"]
    assert (status["replicas"], status["readyReplicas"]) == (2, 2)
    scale = kubectl(
        "get",
        "--raw",
        f"/apis/stable.example.com/v1/namespaces/{kubectl.namespace}/tstests/web/scale",
    )
    assert '"replicas":2,"selector":"app.kubernetes.io/name=tstest' in scale
    assert (kubectl.get(V1BETA1, "web") or {})["spec"] == {"replicas": 2}

    kubectl.apply(tstest(image="operator-runner.local/tstest:1", replicas=0))
    eventually(
        lambda: (kubectl.get(KIND, "web") or {})["status"],
        lambda status: (status["replicas"], status["readyReplicas"]) == (0, 0),
        details=log,
    )
    kubectl("delete", "ts", "web")
    eventually(lambda: names(kubectl, "deployments"), lambda found: found == [], details=log)


def test_a_renamed_deployment_is_replaced(example: Example, kubectl: Kubectl) -> None:
    """A v1beta1 has the operator's image; the old Deployment is deleted once the new one exists."""
    kubectl.apply(tstest(version="v1beta1", deploymentName="front", replicas=2))
    wait_ready(kubectl, "front", 2, example)
    kubectl.merge(KIND, "web", {"spec": {"deploymentName": "back"}})
    eventually(
        lambda: names(kubectl, "deployments"),
        lambda found: found == ["back"],
        details=example.operator.log,
    )
    wait_ready(kubectl, "back", 2, example)
    refused = kubectl.run("patch", KIND, "web", "--type=merge", '-p={"spec": {"replicas": -1}}')
    assert "spec.replicas in body should be greater than or equal to 0" in refused.stderr


def let_be_due(kubectl: Kubectl, tick: datetime) -> None:
    """Give the resource a schedule with this time in the past, and the tick before as the last."""
    before = f"{tick - timedelta(seconds=1):%Y-%m-%dT%H:%M:%SZ}"
    patch = json.dumps({"status": {"lastScheduleTime": before}})
    kubectl("patch", KIND, "web", "--subresource=status", "--type=merge", f"--patch={patch}")
    cron = f"{tick.minute} {tick.hour} {tick.day} {tick.month} *"
    kubectl.merge(KIND, "web", {"spec": {"cronSpec": cron}})


def wait_last_schedule(kubectl: Kubectl, tick: datetime, example: Example) -> None:
    expected = f"{tick:%Y-%m-%dT%H:%M:%SZ}"
    eventually(
        lambda: (kubectl.get(KIND, "web") or {})["status"]["lastScheduleTime"],
        lambda last: last == expected,
        details=example.operator.log,
    )


def test_each_tick_starts_one_job(example: Example, kubectl: Kubectl) -> None:
    """Each tick starts one Job; three are kept. Without the schedule there is a Deployment."""
    log: Callable[[], str] = example.operator.log
    kubectl.apply(tstest(replicas=1))
    wait_ready(kubectl, "web", 1, example)
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    due = [now - timedelta(minutes=minutes) for minutes in (5, 4, 3, 2)]
    for tick in due:
        let_be_due(kubectl, tick)
        kubectl("wait", "--for=create", f"job/web-{tick:%Y%m%d%H%M%S}", "--timeout=180s")
        wait_last_schedule(kubectl, tick, example)
    kept = [f"web-{tick:%Y%m%d%H%M%S}" for tick in due[1:]]
    eventually(lambda: names(kubectl, "jobs"), lambda found: found == kept, details=log)
    assert names(kubectl, "deployments") == []
    kubectl("wait", "--for=condition=Complete", f"job/{kept[-1]}", "--timeout=180s")
    assert kubectl("logs", f"job/{kept[-1]}") == f"Due at {due[-1]:%Y-%m-%dT%H:%M:%SZ}\n"

    kubectl.merge(KIND, "web", {"spec": {"cronSpec": None}})
    wait_ready(kubectl, "web", 1, example)
    eventually(lambda: names(kubectl, "jobs"), lambda found: found == [], details=log)
    eventually(lambda: len(kubectl.list("pods")), lambda count: count == 1, details=log)
