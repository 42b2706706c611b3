"""Runs as Kubernetes Jobs keep the contract of launchers, and survive a restart of the operator."""

from __future__ import annotations

import asyncio
import json

import pytest
from structlog.testing import capture_logs

from operator_runner.ansible.jobs.client import is_finished
from tests.contract.ansible.jobs.conftest import SECONDS, JobRuns
from tests.fakes.term import EPOCH
from tests.support.operator import free_port

WAITING = """
- name: Count
  shell: echo run >> {{ out }}/count
- name: Wait
  wait_for: {path: '{{ out }}/go', timeout: 150, sleep: 1}
"""


async def test_a_job_gives_the_outcome_events_and_output_of_a_local_run(runs: JobRuns) -> None:
    """The same role with the same variables; a failure has its task, message and line."""
    tasks = """
- {name: Text, debug: {msg: 'size {{ size }} äöü'}}
- {name: Loop, command: 'echo {{ item }}', loop: [a, b]}
- {name: Hidden, command: 'echo {{ word }}', no_log: true}
- {name: Skipped, debug: , when: false}
- block: [{name: Rescued, fail: {msg: rescued}}]
  rescue: [{name: Rescue, debug: {msg: saved}}]
- {name: Ignored, command: 'false', ignore_errors: true}
- {name: Included, include_tasks: more.yml}
- {name: Again, operator_sdk.util.requeue_after: {time: 1m}}
- {name: Refuse, fail: {msg: the reason}}
"""
    (runs.role / "tasks" / "more.yml").write_text("- {name: More, set_fact: {a: 1}}\n")
    outcomes, seen, outputs = [], [], []
    for template in (runs.watch.job, None):
        runs.events.clear()
        outcomes.append(await runs(tasks, job=template, size=3, word="hidden-word"))
        seen.append([(event.kind, event.data.get("task")) for event in runs.events])
        artifacts = runs.rundirs.path_of(runs.ref) / "artifacts" / runs.run_id
        assert len((artifacts / "events.jsonl").read_text().splitlines()) == len(runs.events)
        outputs.append((artifacts / "stdout").read_text())
    as_job, local = outcomes
    assert as_job.stats == local.stats
    assert as_job.requeue_after == local.requeue_after is not None
    (failure,), (expected,) = as_job.failures, local.failures
    assert (failure.task, failure.message) == (expected.task, expected.message)
    assert failure.path.endswith("roles/tried/tasks/main.yml:11")
    assert seen[0] == seen[1]
    assert "the reason" in outputs[0]
    assert "hidden-word" not in outputs[0]


async def test_a_role_that_cannot_be_loaded_fails_with_the_reason(runs: JobRuns) -> None:
    """What Ansible reports before the first play reaches the outcome."""
    outcome = await runs("- debug: [\n")
    assert "YAML parsing failed" in outcome.failures[0].message
    assert outcome.load_failed


async def test_plays_use_the_api_through_the_proxy(runs: JobRuns) -> None:
    """What a play creates is owned by the resource; its Pod has no other credentials.

    The environment of the run is that of its processes.
    """
    tasks = """
- kubernetes.core.k8s:
    definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: made, namespace: '{{ ns }}'}}
- shell: printf "$TRACEPARENT" > {{ out }}/parent
"""
    outcome = await runs(tasks, environment={"TRACEPARENT": "00-a-b-01"}, ns=runs.ref.namespace)
    assert outcome.successful, outcome.failures
    path = f"/api/v1/namespaces/{runs.ref.namespace}/configmaps/made"
    assert await runs.written("parent") == "00-a-b-01"
    made = await runs.api.request("GET", path)
    assert [each["name"] for each in made["metadata"]["ownerReferences"]] == ["owner"]
    assert [(version != "", verb) for _, version, verb in runs.recorder.written]
    pod = await runs.pod()
    assert pod["spec"]["automountServiceAccountToken"] is False


async def test_the_token_is_in_a_secret_that_is_deleted_at_the_end(runs: JobRuns) -> None:
    """Neither Job nor Pod have the token or a variable; nothing of the resource is in the spec."""
    running = asyncio.create_task(runs(WAITING, password="hidden-value"))
    await runs.written("count")
    job, pod = await runs.job(), await runs.pod()
    token = await runs.client.token(job)
    assert token
    for body in (job, pod):
        assert token not in json.dumps(body)
        assert "hidden-value" not in json.dumps(body)
    assert runs.owner["metadata"]["name"] not in json.dumps(pod["spec"]["containers"])
    (runs.out / "go").touch()
    assert (await running).successful
    assert await runs.client.token(job) is None


async def test_a_run_over_its_deadline_ends_with_its_job(runs: JobRuns) -> None:
    """The failure names the timeout, and no Job is left."""
    outcome = await runs(WAITING, seconds=8)
    assert outcome.timed_out
    assert outcome.failures[0].message.startswith("timeout")
    assert await runs.client.jobs_of(runs.owner["metadata"]["uid"]) == []


async def test_a_cancelled_run_ends_with_its_job(runs: JobRuns) -> None:
    """Supersede, suspend and deletion cancel: the Job is deleted before the call returns."""
    running = asyncio.create_task(runs(WAITING))
    await runs.written("count")
    running.cancel()
    await asyncio.wait({running})
    assert running.cancelled()
    assert await runs.client.jobs_of(runs.owner["metadata"]["uid"]) == []


async def test_a_container_out_of_memory_fails_the_run_with_its_reason(runs: JobRuns) -> None:
    """The reason of the container is in the message; the Job is kept for its ttl."""
    running = asyncio.create_task(runs(WAITING))
    await runs.written("count")
    runs.kubelet.kill((await runs.pod())["metadata"]["name"])
    outcome = await running
    assert "OOMKilled" in outcome.failures[0].message
    assert is_finished(await runs.job())


async def test_an_evicted_pod_fails_the_run_with_its_reason(runs: JobRuns) -> None:
    """The message has the reason of the kubelet."""
    running = asyncio.create_task(runs(WAITING))
    await runs.written("count")
    await runs.kubelet.evict((await runs.pod())["metadata"]["name"])
    outcome = await running
    assert "low on resource: memory" in outcome.failures[0].message


@pytest.mark.slow
async def test_a_lost_node_fails_the_run_with_its_reason(runs: JobRuns) -> None:
    """Kubernetes deletes the Pods of a node that was removed after a minute."""
    running = asyncio.create_task(runs(WAITING))
    await runs.written("count")
    await runs.api.request("DELETE", f"/api/v1/nodes/{(await runs.pod())['spec']['nodeName']}")
    outcome = await running
    assert "its node does not exist any more" in outcome.failures[0].message


async def test_a_deleted_job_fails_the_run_with_its_reason(runs: JobRuns) -> None:
    """The run does not wait for its deadline."""
    running = asyncio.create_task(runs(WAITING))
    await runs.written("count")
    name = (await runs.job())["metadata"]["name"]
    path = f"/apis/batch/v1/namespaces/{runs.ref.namespace}/jobs/{name}"
    await runs.api.request("DELETE", path, body={"propagationPolicy": "Background"})
    outcome = await running
    assert "was deleted before the run ended" in outcome.failures[0].message


async def test_the_next_operator_adopts_a_running_job(runs: JobRuns) -> None:
    """The play continues without an operator, and its whole output reaches the next one."""
    tasks = (
        WAITING
        + """
- kubernetes.core.k8s_info: {kind: ConfigMap, namespace: '{{ ns }}', name: owner}
"""
    )
    await runs.leave(tasks, ns=runs.ref.namespace)
    await runs.stop()
    name = (await runs.job())["metadata"]["name"]
    (runs.out / "go").touch()
    runs.events.clear()
    await runs.start()
    assert runs.launcher.adoptable == [runs.ref]
    while not runs.server.waiting:  # noqa: ASYNC110 (the Pod connects)
        await asyncio.sleep(0.1)
    outcome = await runs(tasks, ns=runs.ref.namespace)
    assert outcome.successful, outcome.failures
    assert (await runs.job())["metadata"]["name"] == name
    assert await runs.written("count") == "run\n"
    tasks_seen = [e.data["task"] for e in runs.events if e.kind == "runner_on_ok"]
    assert tasks_seen == ["Count", "Wait", "kubernetes.core.k8s_info"]
    assert runs.adopted == [runs.ref]


@pytest.mark.parametrize("loss", ["slot", "Lease"])
async def test_the_job_of_a_lost_resource_is_left_to_its_next_owner(
    runs: JobRuns, loss: str
) -> None:
    """A cancelled run neither deletes its Job nor ends its Pod if another replica continues it."""
    running = asyncio.create_task(runs(WAITING))
    await runs.written("count")
    job = await runs.job()
    if loss == "slot":
        runs.owns_slot = False
    else:
        runs.clock.now += 11
    running.cancel()
    await asyncio.wait({running})
    assert (await runs.job())["metadata"]["uid"] == job["metadata"]["uid"]
    assert await runs.client.token(job)
    await runs.stop()
    runs.owns_slot = True
    runs.term.extend(EPOCH, runs.clock.now)
    (runs.out / "go").touch()
    await runs.start()
    outcome = await runs(WAITING)
    assert outcome.successful, outcome.failures
    assert await runs.written("count") == "run\n"
    assert runs.adopted == [runs.ref]


@pytest.mark.parametrize("current", ["", "the uid of a resource with its name"])
async def test_the_next_operator_ends_the_job_of_a_resource_that_it_does_not_run(
    runs: JobRuns, current: str
) -> None:
    """The resource is suspended, deleted, or another one: its Pod does not wait for a deadline."""
    await runs.leave(WAITING)
    await runs.stop()
    await runs.start()
    uid = runs.owner["metadata"]["uid"]
    await runs.launcher.end_unadopted(runs.ref, uid)
    assert len(await runs.client.jobs_of(uid)) == 1
    await runs.launcher.end_unadopted(runs.ref, current)
    assert await runs.client.jobs_of(uid) == []
    assert not runs.kubelet.processes


@pytest.mark.parametrize("owner", ["another operator", "another replica"])
async def test_jobs_of_others_are_not_ended(runs: JobRuns, owner: str) -> None:
    """Two operators may share the namespace of Jobs, and the slot may have moved meanwhile."""
    await runs.leave(WAITING)
    await runs.stop()
    if owner == "another operator":
        runs.port = free_port()
    await runs.start()
    assert runs.launcher.adoptable == [runs.ref]
    if owner == "another replica":
        runs.clock.now += 11
    await runs.launcher.end_unadopted(runs.ref, "")
    assert len(await runs.client.jobs_of(runs.owner["metadata"]["uid"])) == 1


async def test_a_job_whose_run_has_ended_is_kept_for_its_ttl(runs: JobRuns) -> None:
    """The next run does not delete it, although its Pod has not ended yet."""
    runs.kubelet.hold_ends()
    assert (await runs("- debug: {msg: first}\n")).successful
    first = await runs.job()
    assert not is_finished(first)
    assert (await runs("- debug: {msg: second}\n")).successful
    runs.kubelet.release_ends()
    jobs = await runs.client.jobs_of(runs.owner["metadata"]["uid"])
    assert len(jobs) == 2
    assert first["metadata"]["uid"] in {each["metadata"]["uid"] for each in jobs}


@pytest.mark.slow
async def test_a_job_whose_run_had_ended_when_the_operator_was_killed_is_kept(
    runs: JobRuns,
) -> None:
    """The next operator waits until the Job has finished, and does not delete it."""
    runs.kubelet.hold_ends()
    assert (await runs("- debug: {msg: first}\n")).successful
    first = await runs.job()
    assert not is_finished(first)
    await runs.stop()
    await runs.start()
    with capture_logs() as lines:
        second = asyncio.create_task(runs("- debug: {msg: second}\n"))
        while all("whose run has ended" not in line["event"] for line in lines):
            await asyncio.sleep(0.1)
            assert not second.done()
        runs.kubelet.release_ends()
        assert (await second).successful
    jobs = await runs.client.jobs_of(runs.owner["metadata"]["uid"])
    assert len(jobs) == 2
    assert first["metadata"]["uid"] in {each["metadata"]["uid"] for each in jobs}


async def test_a_job_for_an_outdated_role_is_not_adopted(runs: JobRuns) -> None:
    """It is deleted, and the edited role runs as another Job."""
    await runs.leave(WAITING)
    name = (await runs.job())["metadata"]["name"]
    async with asyncio.timeout(SECONDS):
        outcome = await runs("- debug: {msg: edited}\n")
    assert outcome.successful, outcome.failures
    assert (await runs.job())["metadata"]["name"] != name
    assert runs.adopted == []
