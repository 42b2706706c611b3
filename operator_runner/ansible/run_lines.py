"""The lines that a run sends to the operator, as an asyncio stream: events, then the end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass

from operator_runner.core.errors import RunError
from operator_runner.core.model import Json

LINE_LIMIT = 256 * 1024 * 1024
"""Bytes of one event at most: results of many megabytes are legal."""


@dataclass(slots=True)
class RunLines:
    """What `runner.play` writes, read at the other end."""

    stream: asyncio.StreamReader
    exit_status: int | None = None
    """How ansible-playbook ended; None if that was never told."""
    left_processes: bool = False
    """Whether the play has processes that go on after its end."""

    async def events(self) -> AsyncIterator[Json]:
        """Yield ansible-runner's events as they happen, until the run has ended.

        Raises RunError if the run says that it could not be run.
        """
        async for line in self.stream:
            said = json.loads(line)
            if "broken" in said:
                raise RunError(f"ansible-runner could not run the play: {said['broken']}")
            if "exit_status" in said:
                self.exit_status = said["exit_status"]
                self.left_processes = said["left_processes"]
            else:
                yield said
