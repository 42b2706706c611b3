"""Read the events of a run from the process that runs it, one JSON object per line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass

from operator_runner.core.errors import RunError
from operator_runner.core.model import Json

MAX_LINE_BYTES = 256 * 1024 * 1024
"""Maximum size of one event; results of many megabytes are valid."""


@dataclass(slots=True)
class EventStream:
    """Reads what `runner.play` writes."""

    stream: asyncio.StreamReader
    exit_status: int | None = None
    """Exit status of ansible-playbook; None before the end, and if the play was not run."""
    left_processes: bool = False
    """Whether processes of the play are still running after its end."""

    async def events(self) -> AsyncIterator[Json]:
        """Yield ansible-runner's events as they happen, until the run has ended.

        Raises RunError if the play could not be run.
        """
        async for line in self.stream:
            message = json.loads(line)
            if "error" in message:
                raise RunError(f"ansible-runner could not run the play: {message['error']}")
            if "exit_status" in message:
                self.exit_status = message["exit_status"]
                self.left_processes = message["left_processes"]
            else:
                yield message
