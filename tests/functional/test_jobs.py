"""Runs as Jobs of a whole operator; a small kubelet of this machine has their Pods."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from operator_runner.core.slot_assignment import SLOTS
from operator_runner.kube.api import Api
from operator_runner.kube.session import connect
from tests.functional.test_operator import KIND, ROLE, echo
from tests.functional.test_rights import deployment, grant, rbac
from tests.functional.test_shards import current_assignment, owner_of
from tests.support.balancer import balancer
from tests.support.kubectl import Kubectl
from tests.support.kubelet import kubelet
from tests.support.operator import Operator, free_port
from tests.support.runner_cli import RunnerCli
from tests.support.waiting import eventually

NAME = "echoes/a"
SECONDS = 180.0
TASKS = """
- {{name: Count, ansible.builtin.shell: 'echo {{{{ size | default(0) }}}} >> {out}/count'}}
- {{name: Wait, ansible.builtin.wait_for: {{path: '{out}/go', timeout: 1500, sleep: 1}}}}
- name: Read through the next operator
  kubernetes.core.k8s_info: {{kind: ConfigMap, name: a}}
"""


@pytest.fixture
async def pods(control_plane: Path, kubectl: Kubectl, tmp_path: Path) -> AsyncIterator[None]:
    """Run the Pods of Jobs."""
    connection = await connect(control_plane, user_agent="operator-runner/test")
    try:
        async with kubelet(Api(connection), kubectl.namespace, tmp_path):
            yield
    finally:
        await connection.close()


def write_project(project: Path, kubectl: Kubectl, out: Path, **keys: Any) -> tuple[str, ...]:
    """Make the runs of the project Jobs; return the flags for them."""
    (project / ROLE).write_text(TASKS.format(out=out))
    job = {"image": "example.com/ee:1", "namespace": kubectl.namespace}
    entry = {"group": "test.example.com", "version": "v1", "kind": "Echo", "role": "echo"}
    watches = [entry | keys | {"execution": {"job": job}}]
    (project / "watches.yaml").write_text(json.dumps(watches))
    return ("--jobs-host=127.0.0.1", f"--jobs-port={free_port()}")


@pytest.mark.slow
@pytest.mark.usefixtures("pods")
async def test_a_terminated_operator_leaves_its_job_to_the_next_one(
    kubectl: Kubectl, project: Path, tmp_path: Path, operator: Operator
) -> None:
    """Nothing ends the play, and the role runs once more only after its success."""
    flags = write_project(project, kubectl, tmp_path)
    # The kubelet is a task of the event loop.
    await asyncio.to_thread(_restart, operator, kubectl, tmp_path, flags)


def _restart(operator: Operator, kubectl: Kubectl, out: Path, flags: tuple[str, ...]) -> None:
    count = out / "count"
    flags = (*flags, "--graceful-shutdown-timeout=1s")
    operator.start(*flags)
    kubectl.apply(echo())
    eventually(count.exists, details=operator.log)
    assert operator.terminate() == 0
    operator.start(*flags)
    eventually(lambda: operator.lines("Adopted the Job of an earlier run"), details=operator.log)
    (out / "go").touch()
    kubectl("wait", "--for=condition=Successful", f"{KIND}/a", "--timeout=300s")
    # The next run is that for changes which nothing has observed.
    eventually(lambda: "0\n0\n" in count.read_text(), details=operator.log)
    assert operator.terminate() == 0


@pytest.mark.usefixtures("pods")
async def test_the_next_leader_adopts_the_job_of_a_leader_that_was_killed(
    kubectl: Kubectl, project: Path, tmp_path: Path, make_operator: Callable[[str], Operator]
) -> None:
    """Both are behind the Service of --jobs-service: only the leader opens the port."""
    write_project(project, kubectl, tmp_path)
    port = free_port()
    flags = (f"--jobs-service={kubectl.namespace}/echo-jobs:{port}", f"--jobs-port={port}")
    election = (
        "--leader-elect",
        "--leader-election-id=echo",
        f"--leader-election-namespace={kubectl.namespace}",
        "--leader-elect-lease-duration=20s",
        "--leader-elect-renew-deadline=15s",
    )
    await asyncio.to_thread(_take_over, make_operator, kubectl, tmp_path, (*flags, *election))


def _take_over(
    make_operator: Callable[[str], Operator], kubectl: Kubectl, out: Path, flags: tuple[str, ...]
) -> None:
    first, second = make_operator("first"), make_operator("second")
    first.start(*flags)
    kubectl.apply(echo())
    eventually((out / "count").exists, details=first.log)
    second.start(*flags)
    first.kill()
    adopted = "Adopted the Job of an earlier run"
    eventually(lambda: second.lines(adopted), seconds=SECONDS, details=second.log)
    assert (out / "count").read_text() == "0\n"
    (out / "go").touch()
    kubectl("wait", "--for=condition=Successful", f"{KIND}/a", "--timeout=300s")
    jobs = [line["job"] for line in first.lines("Created Job") + second.lines(adopted)]
    assert jobs[0] == jobs[1]
    assert kubectl.get("secret", "echo-jobs-certificate") is not None


@pytest.mark.usefixtures("pods")
@pytest.mark.slow
async def test_the_derived_permissions_suffice_for_jobs_shards_and_requests(
    kubectl: Kubectl, project: Path, tmp_path: Path
) -> None:
    """Jobs are created, adopted by the next replica and deleted; nothing is forbidden.

    The operator can answer `reconcile --wait` without a finalizer too.
    """
    write_project(project, kubectl, tmp_path, supersede=True)
    tasks = (project / ROLE).read_text()
    # The requests of roles are recorded; this test is about those of the operator.
    (project / ROLE).write_text(tasks.partition("- name: Read")[0])
    await asyncio.to_thread(_use_derived_permissions, project, kubectl, tmp_path)


def _use_derived_permissions(project: Path, kubectl: Kubectl, out: Path) -> None:
    port = free_port()
    flags = (
        f"--jobs-service={kubectl.namespace}/echo-jobs:{port}",
        f"--jobs-port={port}",
        "--shards=auto",
        "--leader-elect",
        "--leader-election-id=echo",
        f"--leader-election-namespace={kubectl.namespace}",
        "--graceful-shutdown-timeout=1s",
    )
    manager = out / "manager.yaml"
    manager.write_text(json.dumps(deployment(kubectl.namespace, *flags)))
    derived = rbac(project, f"--crds={project / 'crd.yaml'}", f"--manager={manager}")
    assert derived.returncode == 0, derived.stderr
    grant(kubectl, derived.stdout)
    # New projects have this binding.
    account = f"--serviceaccount={kubectl.namespace}:controller-manager"
    kubectl("create", "rolebinding", "election", "--role=leader-election-role", account)
    user = f"system:serviceaccount:{kubectl.namespace}:controller-manager"
    kubectl.wait_for_permission(user, "list", KIND)
    kubectl.wait_for_permission(user, "create", "leases.coordination.k8s.io")
    kubeconfig = kubectl.kubeconfig("controller-manager", out)
    replicas = []
    for name in ("first", "second"):
        (out / name).mkdir()
        replicas.append(Operator(project, kubeconfig, kubectl.namespace, out / name, {}))

    def forbidden(replica: Operator) -> float:
        return replica.metric("rest_client_requests_total", code="403")

    def details() -> str:
        return "".join(each.log() for each in replicas)

    try:
        first, second = replicas
        first.start(*flags)
        kubectl.apply(echo())
        eventually((out / "count").exists, seconds=SECONDS, details=details)
        assert forbidden(first) == 0, details()
        assert first.terminate() == 0
        second.start(*flags)
        adopted = "Adopted the Job of an earlier run"
        eventually(lambda: second.lines(adopted), seconds=SECONDS, details=details)
        (out / "go").touch()
        kubectl("wait", "--for=condition=Successful", f"{KIND}/a", "--timeout=300s")
        cli = RunnerCli(kubeconfig, kubectl.namespace)
        requested = cli.run("reconcile", NAME, "--wait")
        assert requested.returncode == 0, requested.stderr + details()
        (out / "go").unlink()
        kubectl.apply(echo(size=2))
        eventually(lambda: "2" in (out / "count").read_text(), seconds=SECONDS, details=details)
        kubectl("delete", KIND, "a")
        eventually(
            lambda: all("succeeded" in job["status"] for job in kubectl.list("jobs")),
            seconds=SECONDS,
            details=details,
        )
        assert forbidden(second) == 0, details()
    finally:
        for each in replicas:
            each.kill()


EACH = """
- {{name: Count, ansible.builtin.shell: 'echo run >> {out}/{{{{ ansible_operator_meta.name }}}}'}}
- {{name: Wait, ansible.builtin.wait_for: {{path: '{out}/go', timeout: 1500, sleep: 1}}}}
- name: Write through the owner
  kubernetes.core.k8s:
    api_version: v1
    kind: ConfigMap
    name: '{{{{ ansible_operator_meta.name }}}}'
    namespace: '{{{{ ansible_operator_meta.namespace }}}}'
"""
NAMES = [f"echo-{number}" for number in range(4)]


@pytest.mark.usefixtures("pods")
@pytest.mark.slow
async def test_jobs_of_shards_follow_their_resource_to_its_next_owner(
    kubectl: Kubectl, project: Path, tmp_path: Path, make_operator: Callable[[str], Operator]
) -> None:
    """A replica joins, one is killed, and one ends: no play is repeated, and none is lost.

    The Jobs of resources that are suspended or deleted meanwhile are deleted.
    """
    write_project(project, kubectl, tmp_path)
    (project / ROLE).write_text(EACH.format(out=tmp_path))
    ports, service = [free_port() for _ in range(3)], free_port()
    replicas = [make_operator(name) for name in ("first", "second", "third")]
    flags = [
        f"--jobs-service={kubectl.namespace}/echo-jobs:{service}",
        "--shards=auto",
        "--leader-elect",
        "--leader-election-id=echo",
        f"--leader-election-namespace={kubectl.namespace}",
        "--leader-elect-lease-duration=20s",
        "--leader-elect-renew-deadline=15s",
        "--graceful-shutdown-timeout=1s",
        "--max-concurrent-reconciles=20",
    ]
    commands = [
        (one, [f"--jobs-port={port}", *flags]) for one, port in zip(replicas, ports, strict=True)
    ]
    async with balancer(service, ports):
        await asyncio.to_thread(_move, commands, kubectl, tmp_path)


def _apply_owned(
    kubectl: Kubectl, member: str, start_runs: Callable[[str], None]
) -> tuple[str, str]:
    """Apply resources until a replica owns two whose runs have started; return their names."""
    assignment = current_assignment(kubectl)
    owned: list[str] = []
    for number in itertools.count():
        name = f"owned-{number}"
        start_runs(name)
        if owner_of(kubectl, assignment, name) == member:
            owned.append(name)
        if len(owned) == 2:
            break
    return owned[0], owned[1]


def _resources_of_jobs(kubectl: Kubectl) -> set[str]:
    annotations = [job["metadata"]["annotations"] for job in kubectl.list("jobs")]
    return {each["operator-runner.dev/resource"].rpartition("/")[2] for each in annotations}


def _move(commands: list[tuple[Operator, list[str]]], kubectl: Kubectl, out: Path) -> None:
    (first, of_first), (second, of_second), (third, of_third) = commands

    def details() -> str:
        return "".join(each.log() for each, _ in commands)

    def has_slots(operator: Operator, count: float) -> None:
        name = "operator_runner_shard_slots"
        eventually(
            lambda: operator.metric(name, state="active"),
            lambda slots: slots == count,
            seconds=SECONDS,
            details=details,
        )

    def adopted(operator: Operator) -> set[str]:
        return {line["job"] for line in operator.lines("Adopted the Job of an earlier run")}

    def start_runs(*names: str) -> None:
        kubectl.apply(*(echo(name) for name in names))
        eventually(
            lambda: all((out / each).exists() for each in names), seconds=SECONDS, details=details
        )

    first.start(*of_first)
    start_runs(*NAMES)
    jobs = {line["job"] for line in first.lines("Created Job")}
    assert len(jobs) == len(NAMES)
    (member,) = set(current_assignment(kubectl).owners.values())
    second.start(*of_second, wait=False)
    has_slots(second, SLOTS / 2)
    suspended, deleted = _apply_owned(kubectl, member, start_runs)
    first.kill()
    kubectl("annotate", KIND, suspended, "operator-runner.dev/suspend=true")
    kubectl("delete", KIND, deleted)
    has_slots(second, SLOTS)
    eventually(
        lambda: _resources_of_jobs(kubectl).isdisjoint({suspended, deleted}),
        seconds=SECONDS,
        details=details,
    )
    eventually(
        lambda: adopted(second), lambda found: jobs <= found, seconds=SECONDS, details=details
    )
    third.start(*of_third, wait=False)
    has_slots(third, SLOTS / 2)
    assert second.terminate() == 0
    eventually(
        lambda: adopted(third), lambda found: jobs <= found, seconds=SECONDS, details=details
    )
    assert [(out / each).read_text() for each in NAMES] == ["run\n"] * len(NAMES)
    (out / "go").touch()
    for name in NAMES:
        kubectl("wait", "--for=condition=Successful", f"{KIND}/{name}", "--timeout=300s")
        written = kubectl.get("configmap", name)
        assert written is not None
        (owner,) = written["metadata"]["ownerReferences"]
        assert owner["name"] == name
    # The second run of each is that for changes which nothing has observed.
    created = {line["job"] for each, _ in commands for line in each.lines("Created Job")}
    assert jobs <= created
    assert [each for each, _ in commands if each.lines("Deleting outdated Job")] == []


@pytest.mark.usefixtures("pods")
async def test_the_job_of_the_current_run_is_deleted_or_repeated(
    kubectl: Kubectl, project: Path, tmp_path: Path, operator: Operator, control_plane: Path
) -> None:
    """An edit starts another Job, a lost Job is a failure and repeated, and suspension ends it."""
    flags = write_project(project, kubectl, tmp_path, supersede=True)
    cli = RunnerCli(control_plane, kubectl.namespace)
    await asyncio.to_thread(_lose_and_end, operator, kubectl, tmp_path, flags, cli)


def _lose_and_end(
    operator: Operator, kubectl: Kubectl, out: Path, flags: tuple[str, ...], cli: RunnerCli
) -> None:
    def jobs() -> list[str]:
        return [each["metadata"]["name"] for each in kubectl.list("jobs")]

    def sizes() -> list[str]:
        return (out / "count").read_text().split()

    def failures() -> str:
        return "".join(
            event["message"] for event in kubectl.list("events") if event["type"] == "Warning"
        )

    operator.start(*flags)
    kubectl.apply(echo(size=1))
    eventually((out / "count").exists, details=operator.log)
    (first,) = jobs()
    kubectl.apply(echo(size=2))
    eventually(sizes, lambda found: found == ["1", "2"], seconds=SECONDS, details=operator.log)
    # The first one stays until its Pod is gone.
    (second,) = eventually(
        jobs, lambda found: len(found) == 1 and first not in found, details=operator.log
    )
    kubectl("delete", "job", second)
    lost = f"Job {second}: the Job was deleted before the run ended"
    eventually(lambda: lost in failures(), seconds=SECONDS, details=operator.log)
    eventually(sizes, lambda found: found == ["1", "2", "2"], seconds=SECONDS, details=operator.log)
    suspended = cli.run("suspend", NAME, "--cancel", "--timeout=180s")
    assert suspended.returncode == 0, suspended.stderr
    eventually(jobs, lambda found: found == [], seconds=SECONDS, details=operator.log)
    (out / "go").touch()
    resumed = cli.run("resume", NAME)
    assert resumed.returncode == 0, resumed.stderr
    kubectl("wait", "--for=condition=Successful", f"{KIND}/a", "--timeout=300s")
    assert sizes()[:3] == ["1", "2", "2"]
    assert operator.metric("operator_runner_runs_total", outcome="superseded") == 2
