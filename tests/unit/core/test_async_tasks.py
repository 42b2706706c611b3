"""Threads that are not abandoned when their task is cancelled."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

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


async def test_work_is_not_left_in_the_pool_when_no_thread_can_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is done at once, and not again by a later thread: its descriptor may be another's then."""
    calls: list[int] = []

    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
    with monkeypatch.context() as limited:
        limited.setattr(threading.Thread, "start", fail)
        await finish_in_thread(calls.append, 1)
        assert calls == [1]
    await asyncio.to_thread(calls.append, 2)
    await asyncio.get_running_loop().shutdown_default_executor()
    assert calls == [1, 2]
