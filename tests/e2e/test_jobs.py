"""Runs are Kubernetes Jobs on a real node, with the image that these tests build."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from operator_runner.devcluster import Cluster
from tests.support.kubectl import Json, Kubectl
from tests.support.operator import REPOSITORY, Operator, free_port
from tests.support.waiting import eventually

pytestmark = pytest.mark.xdist_group("images")

KIND = "echoes.test.example.com"
ECHO = {"apiVersion": "test.example.com/v1", "kind": "Echo", "metadata": {"name": "a"}}
CRD = REPOSITORY / "tests" / "functional" / "project" / "crd.yaml"
TASKS = """
- name: Count
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {generateName: count-, namespace: '{{ ansible_operator_meta.namespace }}'}
- name: Wait
  kubernetes.core.k8s_info:
    {kind: ConfigMap, name: go, namespace: '{{ ansible_operator_meta.namespace }}'}
  register: go
  until: go.resources
  retries: 1000
  delay: 1
"""


@pytest.fixture
def operator(
    cluster: Cluster, operator_images: dict[str, str], kubectl: Kubectl, tmp_path: Path
) -> Iterator[Operator]:
    """Give an operator outside the cluster whose runs are Jobs; it is not started yet."""
    cluster.exec(["kubectl", "apply", f"--filename={CRD}"])
    kubectl.wait_for_kinds(KIND)
    project = tmp_path / "project"
    tasks = project / "roles" / "echo" / "tasks" / "main.yml"
    tasks.parent.mkdir(parents=True)
    tasks.write_text(TASKS)
    job = {
        "image": operator_images["0.0.2"],
        "namespace": kubectl.namespace,
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}},
        "template": {"spec": {"securityContext": {"runAsUser": 1000770000, "runAsNonRoot": True}}},
    }
    entry = {"group": "test.example.com", "version": "v1", "kind": "Echo", "role": "echo"}
    watches = [entry | {"timeout": "15m", "execution": {"job": job}}]
    (project / "watches.yaml").write_text(json.dumps(watches))
    operator = Operator(project, cluster.kubeconfig, kubectl.namespace, tmp_path, {})
    try:
        yield operator
    finally:
        operator.kill()


def test_a_job_outlives_its_operator_and_is_adopted_by_the_next_one(
    operator: Operator, cluster: Cluster, kubectl: Kubectl
) -> None:
    """The Job ends as the run, as any user, without credentials but those of the run.

    The operator reconciles all resources after its start, so another run may follow at once.
    """
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    host = urlsplit(config["clusters"][0]["cluster"]["server"]).hostname
    flags = (f"--jobs-host={host}", f"--jobs-port={free_port()}")
    operator.start(*flags)
    kubectl.apply(ECHO)

    def counts() -> list[str]:
        names = kubectl("get", "configmaps", "--output=name").split()
        return [name for name in names if name.startswith("configmap/count-")]

    def details() -> str:
        return operator.log() + kubectl("get", "jobs,pods", "--output=yaml")

    def jobs() -> dict[str, Json]:
        items = json.loads(kubectl("get", "jobs", "--output=json"))["items"]
        return {job["metadata"]["uid"]: job for job in items}

    (first,) = eventually(counts, details=details)
    (uid,) = jobs()
    operator.kill()
    kubectl("create", "configmap", "go")
    operator.start(*flags)
    kubectl("wait", "--for=condition=Successful", f"{KIND}/a", "--timeout=300s")
    assert operator.lines("Adopted the Job of an earlier run")
    job = eventually(jobs, lambda found: "succeeded" in found[uid]["status"], details=details)[uid]
    assert (job["status"]["succeeded"], "failed" in job["status"]) == (1, False)
    assert job["metadata"]["annotations"]["operator-runner.dev/resource"].endswith("/a")
    made = kubectl.get("configmap", first.partition("/")[2])
    assert made is not None
    assert made["metadata"]["ownerReferences"][0]["name"] == "a"
