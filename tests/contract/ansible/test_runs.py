"""Runs through the real ansible-runner and Ansible, as the executor promises them, both ways."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
import pytest_asyncio

from operator_runner.ansible.executor import AnsibleExecutor, Launcher, open_launcher
from operator_runner.ansible.rundir import RunDirs
from operator_runner.core.model import (
    GVK,
    ObjectRef,
    RunContent,
    RunEvent,
    RunOutcome,
    RunRequest,
)
from operator_runner.core.settings import AnsibleSettings, ExecutorName
from tests.support.deadlines import Deadline
from tests.support.processes import new_nap, sleepers
from tests.support.waiting import eventually

REF = ObjectRef(GVK("example.com", "v1", "Foo"), "default", "a")
SETTINGS = AnsibleSettings(skip_facts=True)

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Runs:
    """An executor with a work dir of its own, and a role that the test writes."""

    def __init__(self, scratch: Path, launcher: Launcher, settings: AnsibleSettings) -> None:
        self.role = scratch / "roles" / "tried"
        (self.role / "tasks").mkdir(parents=True)
        self.rundirs = RunDirs(scratch / "work")
        self.deadline = Deadline()
        self.executor = AnsibleExecutor(launcher, self.rundirs, settings, timeout=self.deadline)
        self.events: list[RunEvent] = []

    async def __call__(
        self, tasks: str, *, hours: float | None = None, keep: int = 20, **variables: Any
    ) -> RunOutcome:
        (self.role / "tasks" / "main.yml").write_text(tasks)
        request = RunRequest(
            run_id=secrets.token_hex(4),
            ref=REF,
            content=RunContent(role=self.role),
            extra_vars=variables,
            kubeconfig="the token",
            verbosity=0,
            max_artifacts=keep,
            timeout=None if hours is None else timedelta(hours=hours),
            environment={"TRACEPARENT": "00-a-b-01"},
        )
        return await self.executor.run(request, self.events.append)

    @property
    def artifacts(self) -> list[Path]:
        folder = self.rundirs.path_of(REF) / "artifacts"
        return sorted(path for path in folder.iterdir() if not path.is_symlink())


@pytest.fixture(scope="module", params=["cold", "warm"])
def kind(request: pytest.FixtureRequest) -> ExecutorName:
    return cast(ExecutorName, request.param)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def launcher(kind: ExecutorName) -> AsyncIterator[Launcher]:
    """Share the launcher: a fork server takes seconds to start."""
    async with open_launcher(kind, SETTINGS) as opened:
        yield opened


@pytest.fixture
def runs(tmp_path: Path, launcher: Launcher) -> Runs:
    return Runs(tmp_path, launcher, SETTINGS)


async def test_a_work_dir_may_have_a_long_path(tmp_path: Path, launcher: Launcher) -> None:
    """Ansible 2.21 connects to a Unix socket in TMPDIR, whose path is limited to 107 bytes."""
    outcome = await Runs(tmp_path / "long" / ("a" * 200), launcher, SETTINGS)(
        """
- add_host: {name: another, groups: [others], added: "{{ size }}"}
- command: echo {{ hostvars.another.added }}
  register: printed
- assert: {that: "printed.stdout == '3' and groups.others == ['another']"}
""",
        size=3,
    )
    assert outcome.successful, outcome.failures


async def test_variables_reach_the_play_and_events_come_in_order(runs: Runs) -> None:
    """The outcome has the recap of the play; every task has an event at its start and end.

    Processes of the play have the environment of the run.
    """
    check = '- shell: test "$TRACEPARENT" = 00-a-b-01\n'
    outcome = await runs("- debug: {msg: 'size {{ size }}'}\n" + check, size=3)
    assert outcome.successful
    assert outcome.stats is not None
    assert (outcome.stats.ok, outcome.stats.changed) == (2, 1)
    kinds = [event.kind for event in runs.events if "task" in event.kind or "runner" in event.kind]
    task = ["playbook_on_task_start", "runner_on_start", "runner_on_ok"]
    assert kinds == task * 2
    messages = [event.data["res"]["msg"] for event in runs.events if event.kind == "runner_on_ok"][
        :1
    ]
    assert messages == ["size 3"]


async def test_rescued_and_ignored_failures_do_not_count(runs: Runs) -> None:
    """A play that rescues its failures is a success."""
    tasks = """
- fail: {msg: ignored}
  ignore_errors: true
- block: [{fail: {msg: rescued}}]
  rescue: [{debug: {msg: saved}}]
"""
    assert (await runs(tasks)).successful


async def test_a_failure_names_task_place_and_reason(runs: Runs) -> None:
    """Of several failures the one that ended the play is reported."""
    tasks = """
- block: [{fail: {msg: rescued}}]
  rescue: [{debug: {msg: saved}}]
- name: Refuse
  fail: {msg: the reason}
"""
    (failure,) = (await runs(tasks)).failures
    assert (failure.task, failure.message) == ("Refuse", "the reason")
    assert failure.path.endswith("roles/tried/tasks/main.yml:4")


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ("- debug: [\n", "YAML parsing failed"),
        ("- no.such.module: {}\n", "no.such.module"),
        ("- include_role: {name: nowhere}\n", "nowhere"),
    ],
    ids=["syntax", "module", "role"],
)
async def test_a_play_that_cannot_start_reports_the_reason(
    runs: Runs, tasks: str, message: str
) -> None:
    """Mistakes that Ansible finds while loading reach the outcome."""
    outcome = await runs(tasks)
    assert not outcome.successful
    assert message in outcome.failures[0].message


async def test_a_hidden_result_stays_hidden(runs: Runs) -> None:
    """no_log is respected in the outcome, the events, and everything that is left on disk."""
    outcome = await runs("- fail: {msg: 'secret {{ word }}'}\n  no_log: true\n", word="xyzzy")
    assert "xyzzy" not in str(outcome) + str(runs.events)
    left = [path for path in runs.artifacts[0].rglob("*") if path.is_file()]
    assert {"stdout", "events.jsonl"} <= {path.name for path in left}
    assert not [path for path in left if "xyzzy" in path.read_text()]


async def test_credentials_do_not_outlive_the_run(runs: Runs) -> None:
    """The kubeconfig is there for the play alone, and the environment is in no artifact."""
    tasks = """
- command: cat {{ lookup('env', 'KUBECONFIG') }}
  register: found
- assert: {that: found.stdout == 'the token'}
"""
    outcome = await runs(tasks)
    assert outcome.successful, outcome.failures
    assert not (runs.rundirs.path_of(REF) / "env" / "kubeconfig").exists()
    assert "env" not in json.loads((runs.artifacts[0] / "command").read_text())


async def test_a_deadline_ends_the_whole_tree(runs: Runs) -> None:
    """The current task, and a daemon that left its session, end with the run."""
    naps = [new_nap() for _ in range(2)]
    tasks = f"""
- shell: setsid sleep {naps[0]} >/dev/null 2>&1 </dev/null &
- name: Hang
  command: sleep {naps[1]}
"""
    running = asyncio.create_task(runs(tasks, hours=1))
    await asyncio.to_thread(eventually, lambda: len(sleepers(*naps)) == 2)
    await asyncio.to_thread(eventually, lambda: _has_started(runs, "Hang"))
    runs.deadline.expire()
    outcome = await running
    assert "timeout" in outcome.failures[0].message
    assert outcome.failures[0].task.endswith("Hang")
    assert not sleepers(*naps)


def _has_started(runs: Runs, task: str) -> bool:
    return any(
        event.kind == "runner_on_start" and event.data["task"] == task for event in runs.events
    )


async def test_a_cancelled_run_leaves_no_process(runs: Runs) -> None:
    """After a cancellation no process of the run is left."""
    nap = new_nap()
    running = asyncio.create_task(runs(f"- command: sleep {nap}\n"))
    await asyncio.to_thread(eventually, lambda: sleepers(nap))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not sleepers(nap)


@pytest.mark.parametrize("end", ["success", "failure", "timeout", "cancellation"])
async def test_a_run_holds_one_descriptor_until_its_end(
    runs: Runs, end: str, tmp_path: Path
) -> None:
    """That of its private data dir, which is opened once; waiting resources hold none."""
    gate = tmp_path / "gate"
    last = "- fail:\n" if end == "failure" else "- debug:\n"
    assert _descriptors(runs) == []
    wait = f"- name: Wait\n  wait_for: path={gate} timeout=3600\n"
    running = asyncio.create_task(runs(wait + last, hours=1))
    await asyncio.to_thread(eventually, lambda: _has_started(runs, "Wait"))
    assert _descriptors(runs).count(str(runs.rundirs.path_of(REF))) == 1
    if end == "timeout":
        runs.deadline.expire()
    elif end == "cancellation":
        running.cancel()
    else:
        gate.touch()
    await asyncio.wait({running})
    assert _descriptors(runs) == []
    assert running.cancelled() == (end == "cancellation")
    assert end == "cancellation" or running.result().successful == (end == "success")


def _descriptors(runs: Runs) -> list[str]:
    """Return the paths below the work dir that this process has open."""
    own = runs.rundirs.base / ".lock"
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            found.append(link.readlink())
    return [str(path) for path in found if runs.rundirs.base in path.parents and path != own]


async def test_artifacts_are_limited_and_removed(runs: Runs) -> None:
    """The newest runs are kept, `latest` is the last one, and a deleted resource leaves none."""
    for _ in range(3):
        await runs("- debug:\n", keep=2)
    assert len(runs.artifacts) == 2
    latest = runs.rundirs.path_of(REF) / "artifacts" / "latest"
    assert latest.resolve() in runs.artifacts
    assert len([path for path in runs.artifacts[0].rglob("*") if path.is_file()]) < 8
    await runs.executor.forget(REF)
    assert [path.name for path in runs.rundirs.base.iterdir()] == [".lock"]


async def test_further_arguments_reach_ansible_playbook(tmp_path: Path, kind: ExecutorName) -> None:
    """--ansible-args reach ansible-playbook."""
    password = tmp_path / "password"
    password.write_text("open sesame")
    args = f"--vault-password-file {password} -e more=extra"
    settings = replace(SETTINGS, args=args)
    async with open_launcher(kind, settings) as launcher:
        runs = Runs(tmp_path, launcher, settings)
        outcome = await runs("- assert: {that: more == 'extra'}\n")
    assert outcome.successful, outcome.failures
