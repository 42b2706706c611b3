"""Opening the port for Jobs while the API server has problems."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from operator_runner.app import job_serving
from operator_runner.app.job_serving import JobServing
from operator_runner.core.errors import ApiError, ConfigError, Conflict, Forbidden, Unavailable
from operator_runner.core.model import GVK, ObjectRef, Watch

REF = ObjectRef(GVK("", "v1", "ConfigMap"), "default", "a")


class Parts:
    """The server and the launcher: each step fails as often as the test lists errors for it."""

    def __init__(self, *, listing: Sequence[ApiError] = (), start: Sequence[ApiError] = ()) -> None:
        self.errors = {"listing": list(listing), "start": list(start)}
        self.done: list[str] = []
        self.adoptable: list[ObjectRef] = []

    def _do(self, step: str) -> None:
        if self.errors[step]:
            raise self.errors[step].pop(0)
        self.done.append(step)

    async def expect_adoptions(self, watches: Sequence[Watch]) -> None:
        """List the Jobs."""
        del watches
        self._do("listing")
        self.adoptable = [REF]

    async def start(self) -> None:
        """Listen."""
        self._do("start")

    async def renew(self) -> None:
        """Do nothing until cancelled."""
        await asyncio.Event().wait()

    async def stop(self) -> None:
        """Close the port."""
        self.done.append("stop")

    def leave(self) -> None:
        """Keep the Jobs."""
        self.done.append("leave")


async def test_the_port_opens_when_the_api_server_is_available_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The Lease is renewed and signals are observed meanwhile: it is one of the parallel tasks."""
    monkeypatch.setattr(job_serving, "_RETRY_SECONDS", 0.0)
    parts = Parts(listing=[Unavailable("503")], start=[Unavailable("no answer"), Conflict("409")])
    serving = JobServing(parts, parts, ())
    waiting = asyncio.create_task(serving.adoptable())
    running = asyncio.create_task(serving.run())
    async with asyncio.timeout(60):
        assert await waiting == [REF]
    assert parts.done[-2:] == ["listing", "start"]
    running.cancel()
    await asyncio.wait({running})


async def test_missing_permissions_end_the_operator_with_a_hint() -> None:
    """No retry can help, so nothing waits for one."""
    parts = Parts(listing=[Forbidden("cannot list jobs", 403)])
    with pytest.raises(ConfigError, match="cannot list jobs; check the permissions"):
        await JobServing(parts, parts, ()).run()


async def test_jobs_are_kept_before_the_port_closes() -> None:
    """A run that ends when its connections do must not delete its Job."""
    parts = Parts()
    await JobServing(parts, parts, ()).leave()
    assert parts.done == ["leave", "stop"]
