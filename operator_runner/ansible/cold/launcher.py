"""The cold launcher: ordinary ansible-runner in a new process for each run."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import IO

from operator_runner.ansible.processes import end_tree
from operator_runner.ansible.run_lines import LINE_LIMIT, RunLines
from operator_runner.ansible.run_spec import run_spec
from operator_runner.ansible.rundir import RunDir
from operator_runner.core.errors import RunError
from operator_runner.core.model import Json, RunRequest
from operator_runner.core.settings import AnsibleSettings

_GRACE = 10.0
"""Seconds between asking a run to end and ending it by force; more than the child's own."""
_PROGRAM = (sys.executable, "-m", "operator_runner.ansible.cold.run")


@dataclass(slots=True)
class ColdRun:
    """A run under way."""

    _process: asyncio.subprocess.Process
    _complaints: IO[bytes]
    _lines: RunLines

    def events(self) -> AsyncIterator[Json]:
        """See `executor.LaunchedRun`."""
        return self._lines.events()

    @property
    def left_processes(self) -> bool:
        """See `executor.LaunchedRun`."""
        return self._lines.left_processes

    async def wait(self) -> int:
        """Return the exit status of ansible-playbook. Raises RunError if it never ran."""
        status = await self._process.wait()
        if self._lines.exit_status is None:
            self._complaints.seek(0)
            complaint = self._complaints.read().decode(errors="replace").strip()
            last = complaint.splitlines()[-1] if complaint else f"exit status {status}"
            raise RunError(f"ansible-runner could not run the play: {last}")
        return self._lines.exit_status


class ColdLauncher:
    """Starts runs as `ansible-runner run` would."""

    def __init__(self, ansible: AnsibleSettings) -> None:
        """Take the settings that hold for every run."""
        self._ansible = ansible

    @asynccontextmanager
    async def start(self, request: RunRequest, rundir: RunDir) -> AsyncIterator[ColdRun]:
        """Start a run; leaving the block ends whatever of it is still there."""
        orders = {"parent": os.getpid(), "run": run_spec(request, rundir, self._ansible)}
        with tempfile.TemporaryFile() as complaints:
            process = await asyncio.create_subprocess_exec(
                *_PROGRAM,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=complaints,
                start_new_session=True,
                limit=LINE_LIMIT,
            )
            try:
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write(json.dumps(orders).encode())
                process.stdin.close()
                yield ColdRun(process, complaints, RunLines(process.stdout))
            finally:
                await end_tree(process, _GRACE)
