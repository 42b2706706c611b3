"""Read the events of a run from the process that runs it, one JSON object per line.

A process of a run may write anything there. So lines and values are bounded, long lines are decoded
in a thread, and other tasks get their turn however fast lines arrive.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from operator_runner.core.errors import RunError
from operator_runner.core.json_bounds import count_values
from operator_runner.core.model import Json

MAX_LINE_BYTES = 16 * 1024 * 1024
"""Maximum size of one event; results are truncated before, see `event_results`."""
_MAX_VALUES = 500_000
"""Values in one event, maps and lists included: decoded in 0.1 s."""
_LONG_LINE_BYTES = 256 * 1024
"""Longer lines are decoded in a thread."""
_TURN_BYTES = 64 * 1024
"""Bytes of lines after which other tasks get their turn."""
_CURE = "print and register less in one task"


class LineDecoder:
    """Decodes the lines of one run."""

    def __init__(self) -> None:
        """Begin a turn."""
        self._bytes = 0

    async def decode(self, line: bytes) -> Json:
        """Return the JSON object of a line. Raises RunError."""
        self._bytes += len(line) + 1
        if self._bytes > _TURN_BYTES:
            self._bytes = 0
            await asyncio.sleep(0)
        if len(line) > _LONG_LINE_BYTES:
            return await asyncio.to_thread(_message, line)
        return _message(line)


def too_long() -> RunError:
    """Return the error of a line of more than MAX_LINE_BYTES."""
    return RunError(f"invalid output: event of more than {MAX_LINE_BYTES} bytes; {_CURE}")


def _message(line: bytes) -> Json:
    if count_values(line, _MAX_VALUES) > _MAX_VALUES:
        raise RunError(f"invalid output: event of more than {_MAX_VALUES} values; {_CURE}")
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict) or not _is_event(message):
        raise RunError(f"invalid output: expected a JSON object, got {line[:100]!r}")
    return message


def _is_event(message: Json) -> bool:
    """Return whether the fields that events have are of their types."""
    return (
        isinstance(message.get("event", ""), str)
        and isinstance(message.get("stdout") or "", str)
        and isinstance(message.get("event_data") or {}, dict)
        and isinstance(message.get("exit_status", 0), int)
    )


@dataclass(slots=True)
class LocalRun:
    """A run in processes of this machine; see `executor.LaunchedRun`.

    `stream` has what `runner.play` writes; its limit is MAX_LINE_BYTES.
    """

    stream: asyncio.StreamReader
    exit_status: int | None = None
    """Exit status of ansible-playbook; None before the end, and if the play was not run."""
    left_processes: bool = False
    """Whether processes of the play are still running after its end."""
    is_adopted: bool = False
    """The process ends with the operator."""
    _decoder: LineDecoder = field(default_factory=LineDecoder)

    async def events(self) -> AsyncIterator[Json]:
        """Yield ansible-runner's events as they happen, until the run has ended.

        Raises RunError if the play could not be run, and for invalid output.
        """
        while line := await self._line():
            message = await self._decoder.decode(line)
            if "error" in message:
                raise RunError(f"ansible-runner could not run the play: {message['error']}")
            if "exit_status" in message:
                self.exit_status = message["exit_status"]
                self.left_processes = bool(message.get("left_processes"))
            else:
                yield message

    async def _line(self) -> bytes:
        try:
            return await self.stream.readline()
        except ValueError as error:  # beyond the limit of the stream
            raise too_long() from error
