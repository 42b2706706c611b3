"""The cold launcher: start ansible-runner in a new process for each run."""

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

from operator_runner.ansible.child_process import end_tree, last_line
from operator_runner.ansible.event_stream import MAX_LINE_BYTES, LocalRun
from operator_runner.ansible.run_spec import run_spec
from operator_runner.ansible.rundir import RunDir
from operator_runner.core.errors import RunError
from operator_runner.core.model import RunRequest
from operator_runner.core.settings import DISABLED_PATCHES, AnsibleSettings

_GRACE_SECONDS = 10.0
"""Time between SIGTERM and SIGKILL of a run; longer than the play's in `processes`."""
_PROGRAM = (sys.executable, "-P", "-m", "operator_runner.ansible.runner")


@dataclass(slots=True)
class ColdRun(LocalRun):
    """A run in a process of its own; `process` and `stderr` are set."""

    process: asyncio.subprocess.Process | None = None
    stderr: IO[bytes] | None = None

    async def wait(self) -> int:
        """Return the exit status of ansible-playbook. Raises RunError if it never ran."""
        assert self.process is not None
        assert self.stderr is not None
        status = await self.process.wait()
        if self.exit_status is None:
            reason = last_line(self.stderr) or f"exit status {status}"
            raise RunError(f"ansible-runner could not run the play: {reason}")
        return self.exit_status


class ColdLauncher:
    """Starts runs as `ansible-runner run` would."""

    def __init__(self, ansible: AnsibleSettings) -> None:
        """Start runs with these settings."""
        self._ansible = ansible

    async def ready(self) -> None:
        """See `executor.Launcher`."""

    @asynccontextmanager
    async def start(self, request: RunRequest, rundir: RunDir) -> AsyncIterator[ColdRun]:
        """Start a run; leaving the block terminates its processes."""
        spec = run_spec(request, rundir, self._ansible)
        spec["envvars"][DISABLED_PATCHES] = ",".join(self._ansible.disabled_patches)
        arguments = {"parent": os.getpid(), "run": spec}
        with tempfile.TemporaryFile() as stderr:
            process = await asyncio.create_subprocess_exec(
                *_PROGRAM,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
                limit=MAX_LINE_BYTES,
            )
            try:
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write(json.dumps(arguments).encode())
                process.stdin.close()
                yield ColdRun(process.stdout, process=process, stderr=stderr)
            finally:
                await end_tree(process, _GRACE_SECONDS)
