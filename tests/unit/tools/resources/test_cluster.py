"""Waits for the resources of a command."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from operator_runner.core.model import GVK, Json, ObjectRef
from operator_runner.kube.api import Api
from operator_runner.kube.discovery import ApiResource
from operator_runner.tools.resources.cluster import ClusterView, Deadline, NamedResource

PAGES = ApiResource(GVK("example.com", "v1", "Page"), "pages", True)


class UnhandledPages(Api):
    """An API server whose resources no operator handles."""

    def __init__(self) -> None:
        """Connect to nothing."""

    async def request(self, *_: Any, **__: Any) -> Json:
        """Return a resource."""
        return {}


async def test_waits_for_many_resources_end_with_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Though the more there are, the less often each one is read."""
    slept: list[float] = []
    sleep = asyncio.sleep

    async def record(seconds: float) -> None:
        slept.append(seconds)
        await sleep(min(seconds, 1))

    monkeypatch.setattr(asyncio, "sleep", record)
    view = ClusterView(UnhandledPages(), [PAGES], "default")
    targets = [NamedResource(PAGES, ObjectRef(PAGES.gvk, "default", f"p{i}")) for i in range(500)]
    deadline = Deadline(timedelta(seconds=0.5))
    found = await asyncio.gather(
        *(view.wait(target, lambda _: False, deadline) for target in targets)
    )
    assert found == [None] * 500
    # None of them has slept if the machine stood still before the first one.
    assert max(slept, default=0.0) <= 0.5
