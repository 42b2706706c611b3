"""The input and output of a Job's run, between the operator's server and the launcher.

The input has project and variables of the run, in the format of `transmit`. The private data dir
has the roles beside the playbook, so that no path of this machine is in it.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import json
import os
import shutil
import zipfile
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from operator_runner.ansible import event_results
from operator_runner.ansible.event_stream import MAX_LINE_BYTES, LineDecoder, too_long
from operator_runner.ansible.run_spec import (
    COLLECTIONS,
    LENIENT,
    NO_TURBO,
    collection_of,
    role_play,
    roles_path_of,
)
from operator_runner.ansible.rundir import PLAYBOOK, RunDir, command_line, serialize_extravars
from operator_runner.core.errors import RunError
from operator_runner.core.model import Json, RunRequest
from operator_runner.core.settings import AnsibleSettings

_HOST = (
    "localhost ansible_connection=local ansible_python_interpreter={{ansible_playbook_python}}\n"
)
_MAX_RESULT = str(2_000_000)
"""Characters of a result; ansible-runner empties larger ones. The operator cuts it further."""
_IGNORED = shutil.ignore_patterns(".git", ".venv", "__pycache__")


@dataclass(frozen=True, slots=True)
class Transmission:
    """The file with the input of a run, and a digest of its project without the variables."""

    file: Path
    digest: str


def write_transmission(
    request: RunRequest, rundir: RunDir, ansible: AnsibleSettings
) -> Transmission:
    """Write the input of a run below its temporary directory. Raises OSError."""
    # Imported here to keep the start of operators without Jobs fast.
    from ansible_runner import interface  # noqa: PLC0415

    folder = rundir.temp_dir(request.run_id)
    staged = folder / "transmitted"
    shutil.rmtree(staged, ignore_errors=True)
    project = staged / "project"
    for part in (project, staged / "env", staged / "inventory"):
        part.mkdir(mode=0o700, parents=True)
    playbook = _copy_content(request, project, ansible)
    _copy_inventory(ansible.inventory, staged / "inventory")
    (staged / "env" / "cmdline").write_text(command_line(request, ansible))
    digest = _digest(staged)
    (staged / "env" / "extravars").write_text(
        serialize_extravars(request.extra_vars), encoding="utf-8"
    )
    file = folder / "transmission"
    with file.open("wb") as output:
        interface.run(
            streamer="transmit",
            _output=output,
            private_data_dir=str(staged),
            playbook=playbook,
            ident=request.run_id,
            verbosity=request.verbosity,
            envvars={
                **request.environment,
                event_results.VARIABLE: _MAX_RESULT,
                LENIENT: os.environ.get(LENIENT, "true"),
                **NO_TURBO,
            },
        )
    shutil.rmtree(staged)
    return Transmission(file, digest)


def _copy_content(request: RunRequest, project: Path, ansible: AnsibleSettings) -> str:
    """Copy the playbook's directory, roles and own collection; return the name of the playbook."""
    # One of the project takes precedence, so it is copied later.
    _copy(COLLECTIONS, project / "collections")
    roles = [Path(each) for each in roles_path_of(ansible).split(os.pathsep) if each]
    if request.content.role is not None:
        role = request.content.role
        roles.insert(0, role.parent)
        if collection := collection_of(role, ansible):
            target = project.joinpath("collections", "ansible_collections", *collection)
            _copy(role.parent.parent, target)
        plays = role_play(role, ansible, request)
        name = PLAYBOOK
        (project / name).write_text(json.dumps(plays))
    else:
        playbook = request.content.path
        _copy(playbook.parent, project)
        name = playbook.name
    for folder in reversed(roles):
        # The first in the search path takes precedence, so it is copied last.
        if folder.is_dir():
            _copy(folder, project / "roles")
    return name


def _copy_inventory(source: Path | None, target: Path) -> None:
    if source is None:
        (target / "hosts").write_text(_HOST)
    elif source.is_dir():
        _copy(source, target)
    else:
        shutil.copyfile(source, target / "hosts")


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, symlinks=True, ignore=_IGNORED, dirs_exist_ok=True)


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        digest.update(f"{path.relative_to(folder)}\0".encode())
        if path.is_symlink():
            digest.update(os.fsencode(path.readlink()))
        elif path.is_file():
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


_BUFFER_BYTES = 1024 * 1024
"""Unread output in memory; the rest waits in the Pod."""
_MAX_ARCHIVE_BYTES = 1024 * 1024
"""Nothing of a larger archive is kept; the last status replaces the exit status."""
_MAX_STATUS_BYTES = 16
_EXIT_STATUSES = {"successful": 0, "failed": 1}
"""Exit status by ansible-runner's last status."""


class RunChannel:
    """Input and output of the Pod of one run; see `executor.LaunchedRun`.

    `events` parses the output of `ansible-runner worker`. ansible-runner's own reader, `process`,
    is not used: it extracts the archive of the artifacts to the paths that the Pod has chosen.
    """

    left_processes = False
    """The processes of a Pod end with it."""

    def __init__(self, input_file: Path) -> None:
        """Offer `input_file` to the Pod."""
        self.is_adopted = False
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
                yield event_results.bounded(message, event_results.DEFAULT_LIMIT)
        raise RunError(self.fault or "incomplete output of the Job; see the log of its Pod")

    async def wait(self) -> int:
        """See `executor.LaunchedRun`."""
        return self.result()

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
