"""The input and output of a Job's run, between the operator's server and the launcher."""

from __future__ import annotations

import asyncio
import base64
import io
import zipfile
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path

from operator_runner.ansible.event_stream import MAX_LINE_BYTES, LineDecoder, too_long
from operator_runner.core.errors import RunError
from operator_runner.core.model import Json

_BUFFER_BYTES = 1024 * 1024
"""Unread output in memory; the rest waits in the Pod."""
_MAX_ARCHIVE_BYTES = 1024 * 1024
"""Nothing of a larger archive is kept; the last status replaces the exit status."""
_MAX_STATUS_BYTES = 16
_EXIT_STATUSES = {"successful": 0, "failed": 1}
"""Exit status by ansible-runner's last status."""


class RunChannel:
    """Input and output of the Pod of one run; see `proxy.job_server.Channel`.

    `events` parses the output of `ansible-runner worker`. ansible-runner's own reader, `process`,
    is not used: it extracts the archive of the artifacts to the paths that the Pod has chosen.
    """

    def __init__(self, input_file: Path) -> None:
        """Offer `input_file` to the Pod."""
        self.input_file = input_file
        self.received = 0
        self._exit_status: int | None = None
        self._decoder = LineDecoder()
        self._has_ended = False
        self._chunks: deque[bytes] = deque()
        self._pending = 0
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._buffer = bytearray()
        self._writers = 0
        self.fault = ""
        """Reason why no more output comes, empty unless `fail` was called."""
        self.has_contact = False
        """Whether the Pod has connected."""
        self._explanation = ""
        self._last_status = ""

    @property
    def is_complete(self) -> bool:
        """Whether the run has reported its end."""
        return self._has_ended

    def open_writer(self, offset: int) -> Callable[[bytes], Awaitable[None]] | None:
        """Return a writer of the output from `offset` on; None if that is not the next byte.

        A writer waits while earlier output is unread. It replaces the former one, whose connection
        may be lost without a notice and whose next write raises ConnectionAbortedError.
        """
        self.has_contact = True
        if offset != self.received:
            return None
        self._writers += 1
        return partial(self._write, self._writers)

    async def _write(self, writer: int, chunk: bytes) -> None:
        await self._room.wait()
        if writer != self._writers:
            raise ConnectionAbortedError("the Pod sends its output over another connection")
        self.received += len(chunk)
        self._pending += len(chunk)
        if self._pending > _BUFFER_BYTES:
            self._room.clear()
        self._chunks.append(chunk)
        self._changed.set()

    def fail(self, reason: str) -> None:
        """End the output with this reason; no more will be received."""
        self.fault = self.fault or reason
        self._changed.set()

    async def events(self) -> AsyncIterator[Json]:
        """Yield ansible-runner's events until the run ends. Raises RunError if it was lost."""
        while line := await self._line():
            message = await self._decoder.decode(line)
            if "status" in message:
                self._explanation = str(message.get("job_explanation") or "")
                self._last_status = str(message["status"])
            elif "zipfile" in message:
                await self._archive(_size(message["zipfile"]))
            elif "eof" in message:
                self._has_ended = True
                return
            elif message.get("event") != "keepalive":
                yield message
        raise RunError(self.fault or "incomplete output of the Job; see the log of its Pod")

    def result(self) -> int:
        """Return the exit status of ansible-playbook. Raises RunError if it was not run."""
        status = self._exit_status
        if status is None:
            status = _EXIT_STATUSES.get(self._last_status)
        if status is None:
            reason = self._explanation or self.fault or "no exit status"
            raise RunError(f"ansible-runner could not run the play in the Job: {reason}")
        return status

    async def _line(self) -> bytes:
        """Return the next line, empty if there is no more of them. Raises RunError."""
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > MAX_LINE_BYTES:
                raise too_long()
            if not await self._read_more():
                return b""
        return self._take(end + 1)

    async def _read_more(self) -> bool:
        """Add the next chunk to the buffer; return whether there is one."""
        while not self._chunks:
            if self.fault:
                return False
            self._changed.clear()
            await self._changed.wait()
        chunk = self._chunks.popleft()
        self._pending -= len(chunk)
        if self._pending <= _BUFFER_BYTES:
            self._room.set()
        self._buffer += chunk
        return True

    def _take(self, size: int) -> bytes:
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    async def _archive(self, size: int) -> None:
        """Take the exit status from the archive of the artifacts, which is encoded as base64."""
        left = 4 * -(-size // 3)
        kept = bytearray()
        while left > 0:
            if not self._buffer and not await self._read_more():
                return
            chunk = self._take(min(left, len(self._buffer)))
            left -= len(chunk)
            if size <= _MAX_ARCHIVE_BYTES:
                kept += chunk
        self._exit_status = await asyncio.to_thread(exit_status_of, bytes(kept))


def _size(value: object) -> int:
    """Return the size of an archive in bytes. Raises RunError."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise RunError(f"invalid output of the Job: expected a size, got {str(value)[:100]!r}")
    return value


def exit_status_of(archive: bytes) -> int | None:
    """Return the exit status in an archive of artifacts in base64; None without a valid one."""
    try:
        with (
            zipfile.ZipFile(io.BytesIO(base64.b64decode(archive))) as files,
            files.open("rc") as file,
        ):
            return int(file.read(_MAX_STATUS_BYTES))
    except Exception:  # noqa: BLE001 (encryption, compression methods, corrupt data: many types)
        return None
