"""What is reported while a play runs."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from operator_runner.core.model import RunEvent
from operator_runner.reconcile.play import LongTasks


async def test_a_task_that_takes_long_is_reported_while_it_runs() -> None:
    """Once; a task that ends before is not, nor one that runs at the end of the run."""
    reported: list[str] = []
    seen = asyncio.Event()

    async def report(task: str) -> None:
        reported.append(task)
        seen.set()

    def start(tasks: LongTasks, name: str) -> None:
        tasks.on_event(RunEvent("playbook_on_task_start", {"task": name}))

    patient = LongTasks(report, timedelta(hours=1))
    start(patient, "quick")
    patient.end()
    hasty = LongTasks(report, timedelta(0))
    start(hasty, "ended")
    start(hasty, "slow")
    hasty.on_event(RunEvent("runner_retry", {"task": "slow"}))
    await seen.wait()
    start(hasty, "last")
    hasty.end()
    await asyncio.sleep(0)
    assert reported == ["slow"]
