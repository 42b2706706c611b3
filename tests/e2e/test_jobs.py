"""Runs are Kubernetes Jobs on a real node, with the image that these tests build."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from operator_runner.core.slot_assignment import Assignment, decode_assignment, slot_of
from operator_runner.devcluster import Cluster
from operator_runner.kube.shard_leases import ASSIGNMENT
from tests.support.kubectl import Json, Kubectl
from tests.support.operator import REPOSITORY, Operator, free_port
from tests.support.waiting import eventually

pytestmark = pytest.mark.xdist_group("images")

KIND = "echoes.test.example.com"
ECHO = {"apiVersion": "test.example.com/v1", "kind": "Echo", "metadata": {"name": "a"}}
SERVICE = "echo-jobs"
CHOSEN = {"run": "yes"}
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


def replicas_of(namespace: str, image: str) -> list[Json]:
    """Return two replicas of an operator with shards, in Pods behind a Service for Jobs."""
    labels = {"app": "operator"}
    job = {"image": image, "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}}}
    entry = {"group": "test.example.com", "version": "v1", "kind": "Echo"}
    chosen = {"matchLabels": CHOSEN}
    watches = [
        entry | {"role": "/project/roles/echo", "execution": {"job": job}, "selector": chosen}
    ]
    files = {"watches.yaml": "watches.yaml", "tasks.yaml": "roles/echo/tasks/main.yml"}
    container = {
        "name": "manager",
        "image": image,
        "command": ["/tini", "--", "operator-runner", "run"],
        "args": [
            "--watches-file=/project/watches.yaml",
            "--leader-elect",
            "--leader-election-id=echo",
            "--shards=auto",
            f"--jobs-service={SERVICE}",
            "--health-probe-bind-address=:8081",
            "--zap-encoder=json",
        ],
        "env": [{"name": "WATCH_NAMESPACE", "value": namespace}],
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": 8081}},
        "volumeMounts": [{"name": "project", "mountPath": "/project"}],
    }
    items = [{"key": key, "path": path} for key, path in files.items()]
    template = {
        "metadata": {"labels": labels},
        "spec": {
            "serviceAccountName": "operator",
            "containers": [container],
            "volumes": [{"name": "project", "configMap": {"name": "project", "items": items}}],
        },
    }
    data = {"watches.yaml": json.dumps(watches), "tasks.yaml": TASKS}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    ports = [{"port": 443, "targetPort": 8444}]
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "operator"}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "project"}, "data": data},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": SERVICE},
            "spec": {"selector": labels, "ports": ports},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "operator"},
            "spec": spec,
        },
    ]


@pytest.mark.slow
def test_jobs_of_shards_find_their_replica_through_a_service(
    cluster: Cluster, operator_images: dict[str, str], kubectl: Kubectl
) -> None:
    """kube-proxy selects any replica; after one is killed, its Jobs continue at another one."""
    cluster.exec(["kubectl", "apply", f"--filename={CRD}"])
    kubectl.wait_for_kinds(KIND)
    account = f"--serviceaccount={kubectl.namespace}:operator"
    kubectl(
        "create", "clusterrolebinding", kubectl.namespace, "--clusterrole=cluster-admin", account
    )
    kubectl.apply(*replicas_of(kubectl.namespace, operator_images["0.0.2"]))
    kubectl("rollout", "status", "deployment/operator", "--timeout=300s")

    def owners() -> dict[int, str]:
        """Return the replica of each slot, none while slots move."""
        lease = kubectl.get("lease", "echo-shards") or {"metadata": {}}
        text = (lease["metadata"].get("annotations") or {}).get(ASSIGNMENT)
        assignment = decode_assignment("", text) if text else Assignment("")
        return {} if assignment.moves else dict(assignment.owners)

    def jobs(message: str) -> dict[str, set[str]]:
        """Return the Jobs of log lines, by Pod."""
        found: dict[str, set[str]] = {}
        for pod in kubectl.list("pods", "app=operator"):
            name = pod["metadata"]["name"]
            lines = kubectl.run("logs", name).stdout.splitlines()
            records = [json.loads(line) for line in lines if line.startswith("{")]
            found[name] = {each["job"] for each in records if each.get("msg") == message}
        return found

    def resources() -> list[str]:
        """Return the resources whose plays have begun, with repetitions."""
        made = [each for each in kubectl.list("configmaps") if each["metadata"].get("generateName")]
        return sorted(each["metadata"]["ownerReferences"][0]["name"] for each in made)

    def details() -> str:
        return kubectl("get", "pods,jobs,leases,events", "--output=wide")

    replica_of = eventually(
        owners, lambda found: len(set(found.values())) == 2, seconds=300, details=details
    )
    # Only the uid decides on the replica, and thirty are not all of one.
    candidates = [ECHO | {"metadata": {"name": f"echo-{number}"}} for number in range(30)]
    kubectl.apply(*candidates)
    names = {
        replica_of[slot_of(each["metadata"]["uid"])]: str(each["metadata"]["name"])
        for each in kubectl.list(KIND)
    }
    for name in names.values():
        kubectl.apply(ECHO | {"metadata": {"name": name, "labels": CHOSEN}})
    expected = sorted(names.values())
    eventually(resources, lambda found: found == expected, seconds=300, details=details)
    created = eventually(
        lambda: jobs("Created Job"), lambda found: all(found.values()), details=details
    )
    every = set().union(*created.values())
    killed, left = created.popitem()
    kubectl("delete", "pod", killed, "--grace-period=0", "--force")

    def adopted() -> set[str]:
        return set().union(*jobs("Adopted the Job of an earlier run").values())

    eventually(adopted, lambda found: left <= found, seconds=300, details=details)
    assert resources() == expected
    assert {job["metadata"]["name"] for job in kubectl.list("jobs")} == every
    kubectl("create", "configmap", "go")
    for name in expected:
        kubectl("wait", "--for=condition=Successful", f"{KIND}/{name}", "--timeout=300s")


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
