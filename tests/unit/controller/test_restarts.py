"""Nothing ends a watch for good, and while one is missing the operator is not ready."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import structlog.testing

from operator_runner.controller.sources.kind_discovery import watch_kinds_forever
from operator_runner.controller.sources.watch_readiness import WatchReadiness
from operator_runner.core.model import GVK
from operator_runner.kube import watch
from operator_runner.kube import watch as watching
from operator_runner.kube.discovery import ApiResource
from operator_runner.kube.watch import EventType, MetadataEvent, watch_forever

FOO = GVK("example.com", "v1", "Foo")
ERRORS = [RecursionError("too deep"), ValueError("no JSON"), KeyError("uid"), OSError("gone")]


class FakeKinds:
    """One kind that is always there."""

    def __init__(self) -> None:
        self.looks = 0

    async def wait_discovered(self) -> None:
        """Return at once."""

    def resources(self) -> list[ApiResource]:
        """Return the kind."""
        return [ApiResource(FOO, "foos", namespaced=True)]

    async def wait_added(self) -> None:
        """Wait indefinitely."""
        await asyncio.Event().wait()

    async def rediscover(self) -> None:
        """Count."""
        self.looks += 1


async def test_the_watches_of_resources_are_begun_again_after_any_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each error is logged with its reason, and the next try follows."""
    monkeypatch.setattr(watch, "_BACKOFF", (0.001, 0.001))
    errors = list(ERRORS)
    well = asyncio.Event()

    async def watch_kinds(kinds: Sequence[ApiResource]) -> None:
        assert [kind.gvk for kind in kinds] == [FOO]
        if errors:
            raise errors.pop(0)
        well.set()
        await asyncio.Event().wait()

    kinds: Any = FakeKinds()
    with structlog.testing.capture_logs() as lines:
        keeping = asyncio.create_task(watch_kinds_forever(watch_kinds, kinds))
        async with asyncio.timeout(60):
            await well.wait()
        keeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await keeping
    assert [line["error"] for line in lines] == [str(error) for error in ERRORS]
    assert kinds.looks == len(ERRORS)


async def test_the_watch_of_owned_objects_is_begun_again_after_any_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An error in the stream ends it once; an event that is not understood ends nothing."""
    monkeypatch.setattr(watching, "_RESTART_SECONDS", 0.001)
    errors = list(ERRORS)
    taken: asyncio.Queue[str] = asyncio.Queue()

    async def stream(_gvk: GVK, _namespace: str | None) -> AsyncIterator[MetadataEvent]:
        if errors:
            raise errors.pop(0)
        for name in ("odd", "even"):
            yield MetadataEvent(EventType.ADDED, {"metadata": {"name": name}})
        await asyncio.Event().wait()

    def take(_gvk: GVK, event: MetadataEvent) -> None:
        name = event.body["metadata"]["name"]
        if name == "odd":
            raise RecursionError(name)
        taken.put_nowait(name)

    with structlog.testing.capture_logs() as lines:
        following_ = asyncio.create_task(watch_forever(stream, FOO, None, take, "owned objects"))
        async with asyncio.timeout(60):
            assert await taken.get() == "even"
        following_.cancel()
    with pytest.raises(asyncio.CancelledError):
        await following_
    assert [line.get("name") for line in lines] == [*[None] * len(ERRORS), "odd"]


def test_a_watch_that_has_ended_makes_the_operator_unready() -> None:
    """Until the API server accepts it again; deleted kinds do not count."""
    readiness = WatchReadiness(["Foo"])
    readiness.require("Foo", ["/foos"])
    readiness.watch_started("/foos")
    readiness.watch_started("/pods (metadata)")
    assert readiness.not_ready_reason() is None
    for path in ("/foos", "/pods (metadata)"):
        readiness.watch_ended(path, again=True)
        assert (
            readiness.not_ready_reason() == f"the watch of {path} has ended and is being restarted"
        )
        readiness.watch_started(path)
        assert readiness.not_ready_reason() is None
    readiness.watch_ended("/pods (metadata)", again=True)
    readiness.watch_ended("/pods (metadata)", again=False)
    assert readiness.not_ready_reason() is None
    readiness.watch_ended("/never-answered (metadata)", again=True)
    assert readiness.not_ready_reason() is None
    readiness.watch_ended("/foos", again=True)
    readiness.kind_removed("Foo")
    assert readiness.not_ready_reason() == "Foo is not served by the API server: install its CRD"
