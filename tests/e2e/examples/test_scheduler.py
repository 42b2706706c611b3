"""The example Kube Scheduler: profiles of a real kube-scheduler, on Nodes that the test creates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import yaml

from operator_runner.devcluster import Cluster
from tests.support.examples import Example, rendered, running
from tests.support.kubectl import Json, Kubectl
from tests.support.waiting import eventually

CONFIG, OPERATOR = "schedulers.config.openshift.io", "kubeschedulers.operator.openshift.io"
OPERAND = "app.kubernetes.io/name=kube-scheduler"
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"


class World:
    """Changes the two resources, and reads the state of the scheduler."""

    def __init__(self, example: Example) -> None:
        self.example, self.system = example, example.system

    def configure(self, **spec: Any) -> None:
        """Edit the Scheduler, and wait until Pods of its configuration have replaced the others."""
        before = self.deployment()["metadata"]["generation"]
        self.system.merge(CONFIG, "cluster", {"spec": spec})
        eventually(
            lambda: self.deployment()["metadata"]["generation"],
            lambda generation: generation > before,
            details=self.details,
        )
        self.wait_rolled_out()

    def wait_rolled_out(self) -> None:
        """Wait until no former Pod is left, and the conditions are up to date."""
        # The conditions are written at the end of the run that begins the rollout.
        eventually(self.deployment, is_complete, details=self.details)
        eventually(self.pods, lambda pods: len(pods) == 2, details=self.details)
        self.wait_conditions(Available="True", Progressing="False", Degraded="False")

    def wait_conditions(self, **expected: str) -> Json:
        """Wait for these conditions; return the status."""

        def fits(status: Json) -> bool:
            found = {each["type"]: each["status"] for each in status.get("conditions", [])}
            return expected.items() <= found.items()

        status = eventually(
            lambda: (self.system.get(OPERATOR, "cluster") or {}).get("status", {}),
            fits,
            seconds=180,
            details=self.details,
        )
        return dict(status)

    def manage(self, state: str) -> None:
        self.system.merge(OPERATOR, "cluster", {"spec": {"managementState": state}})

    def deployment(self) -> Json:
        """Return the Deployment, once it exists."""
        found = eventually(
            lambda: self.system.get("deployment", "kube-scheduler"), details=self.details
        )
        assert found is not None
        return found

    def pods(self) -> set[str]:
        return {pod["metadata"]["uid"] for pod in self.system.list("pods", OPERAND)}

    def details(self) -> str:
        """Return the states of the Pods and the log of the operator, for a failure."""
        described = self.system.run("describe", "deployments,pods", f"--selector={OPERAND}")
        return described.stdout[-5000:] + self.example.operator.log()[-20000:]


def is_complete(deployment: Json) -> bool:
    """Return whether all Pods are of the newest template, and available."""
    status = deployment.get("status", {})
    counts = [status.get(key) for key in ("replicas", "updatedReplicas", "availableReplicas")]
    current = status.get("observedGeneration") == deployment["metadata"]["generation"]
    return bool(current and counts == [deployment["spec"]["replicas"]] * 3)


@pytest.fixture(scope="module")
def example(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Example]:
    """Run the operator with exactly the permissions of its config/, and its image on the node."""
    scratch = tmp_path_factory.mktemp("scheduler")
    with running("scheduler", cluster, scratch) as example:
        example.load_image()
        yield example


@pytest.fixture(scope="module")
def world(example: Example) -> World:
    """Apply the samples, and wait for the scheduler."""
    example.system("apply", f"--kustomize={example.project / 'config/samples'}")
    world = World(example)
    world.wait_rolled_out()
    return world


@pytest.fixture
def nodes(kubectl: Kubectl) -> Iterator[list[str]]:
    """Create three Nodes and one of the control plane, without kubelets; return their names."""
    kubectl.wait_for_account()
    names = [f"{kubectl.namespace}-{number}" for number in range(4)]
    roles = [{}, {}, {}, {CONTROL_PLANE: ""}]
    kubectl.apply(
        *(node(name, kubectl.namespace, role) for name, role in zip(names, roles, strict=True))
    )
    yield names
    remove_pods(kubectl)
    kubectl("delete", "nodes", *names)


def node(name: str, pool: str, role: Json) -> Json:
    size = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True", "reason": "Test", "message": ""}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"pool": pool, "name": name} | role},
        # Only Pods of these tests tolerate it.
        "spec": {"taints": [{"key": "pool", "value": pool, "effect": "NoSchedule"}]},
        "status": {"capacity": size, "allocatable": size, "conditions": [ready]},
    }


def pod(number: int, **selector: str) -> Json:
    requests = {"cpu": "200m", "memory": "400Mi"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pod-{number}"},
        "spec": {
            "schedulerName": "cluster-scheduler",
            "automountServiceAccountToken": False,
            "tolerations": [{"operator": "Exists"}],
            "nodeSelector": selector,
            "containers": [
                {"name": "main", "image": "example.com/none:1", "resources": {"requests": requests}}
            ],
        },
    }


def place(kubectl: Kubectl, world: World, *pods: Json) -> Counter[str]:
    """Create Pods; return how many of them are on which node, once all are on one."""
    kubectl.apply(*pods)

    def look() -> list[str]:
        found = [each["spec"].get("nodeName", "") for each in kubectl.list("pods")]
        return sorted(found)

    return Counter(eventually(look, all, seconds=120, details=world.details))


def remove_pods(kubectl: Kubectl) -> None:
    """Delete the Pods, which no kubelet ends."""
    kubectl("delete", "pods", "--all", "--force", "--grace-period=0")


def test_ten_pods_spread_then_pack(world: World, nodes: list[str], kubectl: Kubectl) -> None:
    """By the profile; nodes of the control plane and without the labels get none."""
    pods = [pod(number) for number in range(10)]
    world.configure(defaultNodeSelector=f"pool={kubectl.namespace}")
    assert world.wait_conditions()["profile"] == "LowNodeUtilization"
    spread = place(kubectl, world, *pods)
    assert set(spread) == set(nodes[:3])
    assert sorted(spread.values()) == [3, 3, 4]

    remove_pods(kubectl)
    world.configure(profile="HighNodeUtilization")
    assert world.wait_conditions()["profile"] == "HighNodeUtilization"
    packed = place(kubectl, world, *pods)
    assert set(packed) < set(nodes[:3])
    assert [*packed.values()] == [10]

    remove_pods(kubectl)
    world.configure(profile="NoScoring", mastersSchedulable=True)
    assert place(kubectl, world, pod(0, name=nodes[3])) == {nodes[3]: 1}
    world.configure(profile="", mastersSchedulable=False, defaultNodeSelector=None)
    assert world.wait_conditions()["profile"] == "LowNodeUtilization"
    assert_one_at_a_time(world)


def assert_one_at_a_time(world: World) -> None:
    """Assert that rollouts replaced one Pod after another, and left no former configuration."""
    steps = {
        event["message"].rpartition(" from ")[2]
        for event in world.system.list("events")
        if event["reason"] == "ScalingReplicaSet" and " from " in event["message"]
    }
    assert steps == {"0 to 2", "0 to 1", "1 to 2", "2 to 1", "1 to 0"}
    used = world.deployment()["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"]
    eventually(
        lambda: [each["metadata"]["name"] for each in world.system.list("configmaps", OPERAND)],
        lambda names: names == [used],
        details=world.details,
    )


def test_untested_settings_are_rejected(world: World) -> None:
    """The schema rejects unknown profiles and fields, invalid selectors and other names."""
    for body, message in (
        ({"profile": "Random"}, 'spec.profile: Unsupported value: "Random"'),
        ({"policy": {"name": "mine"}}, 'unknown field "spec.policy"'),
        ({"defaultNodeSelector": "pool"}, "spec.defaultNodeSelector in body should match"),
        ({"defaultNodeSelector": "a=b, c=d"}, "spec.defaultNodeSelector in body should match"),
    ):
        spec = {"spec": body}
        patched = world.system.run(
            "patch", CONFIG, "cluster", "--type=merge", f"-p={yaml.safe_dump(spec)}"
        )
        assert message in patched.stderr
    for kind, name in (("Scheduler", CONFIG), ("KubeScheduler", OPERATOR)):
        group = name.partition(".")[2]
        other = {"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": "other"}}
        refused = world.system.run(
            "create", "--filename=-", input_=yaml.safe_dump(other | {"spec": {}})
        )
        assert f"the only {kind} is named cluster" in refused.stderr


def test_a_configuration_that_does_not_start_keeps_the_pods(world: World) -> None:
    """As after an upgrade of the operator, or of the scheduler; the condition has the reason."""
    template = world.example.project / "roles/kube_scheduler/templates/config.yaml.j2"
    text = template.read_text()
    before = world.pods()
    template.write_text(text.replace("NodeResourcesFit", "Missing"))
    world.system.merge(CONFIG, "cluster", {"spec": {"profile": "HighNodeUtilization"}})
    texts = ("kube-scheduler does not start with the profile HighNodeUtilization", "Missing")

    def degraded() -> Json:
        status = world.wait_conditions(Available="True", Progressing="True", Degraded="True")
        return next(each for each in status["conditions"] if each["type"] == "Degraded")

    found = eventually(
        degraded,
        lambda found: all(text in found["message"] for text in texts),
        details=world.details,
    )
    assert found["reason"] == "OperandFailed"
    assert before < world.pods()
    assert world.deployment()["status"]["availableReplicas"] == 2

    # The other profiles are not concerned.
    world.system.merge(CONFIG, "cluster", {"spec": {"profile": "LowNodeUtilization"}})
    world.wait_rolled_out()
    assert world.pods() == before
    template.write_text(text)


def uid(kubectl: Kubectl, kind: str, name: str) -> str:
    """Return the uid of an object, empty if it does not exist."""
    return str((kubectl.get(kind, name) or {}).get("metadata", {}).get("uid", ""))


@pytest.mark.slow
def test_drift_is_reverted(world: World) -> None:
    """Of the Deployment, its configuration, its account and the bindings."""
    system = world.system
    deployment = world.deployment()
    config = deployment["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"]
    system("scale", "deployment/kube-scheduler", "--replicas=1")
    eventually(
        lambda: world.deployment()["spec"],
        lambda spec: spec == deployment["spec"],
        details=world.details,
    )
    stranger = {"kind": "User", "name": "mallory", "apiGroup": "rbac.authorization.k8s.io"}
    binding = "kube-scheduler-operand"
    system.merge("clusterrolebinding", binding, {"subjects": [stranger]})
    eventually(
        lambda: (system.get("clusterrolebinding", binding) or {}).get("subjects"),
        lambda subjects: subjects and [each["name"] for each in subjects] == ["kube-scheduler"],
        details=world.details,
    )
    for kind, name in (
        ("configmap", config),
        ("clusterrolebinding", f"{binding}-volumes"),
        ("deployment", "kube-scheduler"),
        # The tokens of its Pods are those of the former one: they are replaced.
        ("serviceaccount", "kube-scheduler"),
    ):
        former = uid(system, kind, name)
        system("delete", kind, name)
        eventually(
            partial(uid, system, kind, name),
            lambda found, former=former: found not in {"", former},  # type: ignore[misc]
            details=world.details,
        )
    world.wait_rolled_out()


def test_the_management_state_is_obeyed(world: World) -> None:
    """Unmanaged leaves all as it is, Removed deletes it, Managed creates it again."""
    system = world.system
    world.manage("Unmanaged")
    world.wait_conditions(Available="Unknown", Progressing="Unknown", Degraded="Unknown")
    seen = len(world.example.operator.lines("Reconciled"))
    system("scale", "deployment/kube-scheduler", "--replicas=1")
    eventually(
        lambda: len(world.example.operator.lines("Reconciled")) > seen, details=world.details
    )
    assert world.deployment()["spec"]["replicas"] == 1

    world.manage("Removed")
    world.wait_conditions(Available="False", Progressing="False", Degraded="False")
    for kind in ("deployments", "configmaps", "serviceaccounts", "clusterrolebindings"):
        eventually(partial(system.list, kind, OPERAND), lambda found: found == [])
    eventually(world.pods, lambda pods: pods == set(), details=world.details)

    world.manage("Managed")
    world.wait_rolled_out()


def test_the_operator_binds_two_roles_and_changes_none(world: World) -> None:
    """By `bind` of these roles only; it writes nothing in other namespaces."""
    rules = [
        (body["kind"], body["metadata"].get("namespace"), rule)
        for body in rendered(world.system, world.example.project)
        if body["kind"] in {"ClusterRole", "Role"}
        for rule in body["rules"]
    ]
    assert {verb for *_, rule in rules for verb in rule["verbs"]}.isdisjoint({"escalate", "*"})
    bound = [
        name for *_, rule in rules if "bind" in rule["verbs"] for name in rule["resourceNames"]
    ]
    assert sorted(bound) == ["system:kube-scheduler", "system:volume-scheduler"]
    account = (
        "system:serviceaccount:kube-scheduler-system:kube-scheduler-operator-controller-manager"
    )
    for verb, resource, namespace, answer in (
        ("create", "deployments", "kube-scheduler-system", "yes"),
        ("create", "deployments", "default", "no"),
        ("list", "pods", "default", "no"),
        ("bind", "clusterroles/cluster-admin", "default", "no"),
        ("delete", "clusterrolebindings/cluster-admin", "default", "no"),
        ("patch", CONFIG, "default", "no"),
    ):
        command = ("auth", "can-i", verb, resource, f"--as={account}", f"--namespace={namespace}")
        assert world.system.run(*command).stdout.strip() == answer, (verb, resource, namespace)
