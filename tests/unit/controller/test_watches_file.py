"""Edits of the watches file (--reload)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import structlog.testing

from operator_runner.controller.sources import project_watcher
from operator_runner.controller.sources.project_watcher import WatchesFile
from operator_runner.core.errors import ConfigError
from operator_runner.core.model import GVK, RunContent, Watch


def watch(kind: str) -> Watch:
    return Watch(GVK("example.com", "v1", kind), RunContent(role=Path("/roles/a")))


async def test_only_a_valid_edit_that_matters_ends_the_wait(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An invalid file is reported once and loaded until it is valid; comments change nothing."""
    monkeypatch.setattr(project_watcher, "_FILE_POLL_SECONDS", 0.001)
    path = tmp_path / "watches.yaml"
    path.write_text("Foo # comment")
    role_exists, loads = False, asyncio.Queue[str]()
    loop = asyncio.get_running_loop()

    def load() -> list[Watch]:
        text = path.read_text()
        loop.call_soon_threadsafe(loads.put_nowait, text)
        if text == "Bar" and not role_exists:
            raise ConfigError("watches.yaml:1: role: bar was not found")
        return [watch(text.split()[0])]

    with structlog.testing.capture_logs() as lines:
        waiting = asyncio.create_task(WatchesFile(path, [watch("Foo")], load).wait_edited())
        async with asyncio.timeout(60):
            assert await loads.get() == "Foo # comment"
            # At once: the file is read at any moment.
            (tmp_path / "edited").write_text("Bar")
            (tmp_path / "edited").replace(path)
            assert [await loads.get() for _ in range(3)] == ["Bar"] * 3
            assert not waiting.done()
            role_exists = True
            await waiting
    errors = [line["error"] for line in lines if line["log_level"] == "error"]
    assert errors == ["watches.yaml:1: role: bar was not found"]
    assert lines[-1]["event"] == "Watches file was edited: restarting"
