"""Threads that are not abandoned when their task is cancelled."""

from __future__ import annotations

import asyncio
import threading

import pytest

from operator_runner.core.async_tasks import finish_in_thread


async def test_a_cancelled_task_waits_for_its_thread() -> None:
    """Also if it is cancelled twice; the cancellation follows."""
    began, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def call() -> None:
        began.set()
        may_end.wait()
        ended.set()

    task = asyncio.create_task(finish_in_thread(call))
    await asyncio.to_thread(began.wait)
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def test_a_thread_returns_and_raises() -> None:
    """As with asyncio.to_thread."""
    assert await finish_in_thread(int, "7") == 7
    with pytest.raises(ValueError, match="invalid literal"):
        await finish_in_thread(int, "seven")
