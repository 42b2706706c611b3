"""The cold launcher: ordinary ansible-runner in a new process for each run."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from operator_runner.errors import RunError
from operator_runner.execution.processes import end_tree
from operator_runner.execution.rundir import RunDir
from operator_runner.model import Json, RunRequest
from operator_runner.settings import AnsibleSettings

_GRACE = 10.0
"""Seconds between asking a run to end and ending it by force; more than the child's own."""
_LINE_LIMIT = 256 * 1024 * 1024
"""Bytes of one event at most: results of many megabytes are legal."""
_PROGRAM = (sys.executable, "-m", "operator_runner.execution.coldrun")


@dataclass(slots=True)
class ColdRun:
    """A run under way."""

    _process: asyncio.subprocess.Process
    _complaints: IO[bytes]
    _exit_status: int | None = None

    async def events(self) -> AsyncIterator[Json]:
        """Yield ansible-runner's events as they happen, until the run has ended."""
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            event = json.loads(line)
            if "exit_status" in event:
                self._exit_status = event["exit_status"]
            else:
                yield event

    async def wait(self) -> int:
        """Return the exit status of ansible-playbook. Raises RunError if it never ran."""
        status = await self._process.wait()
        if self._exit_status is None:
            self._complaints.seek(0)
            complaint = self._complaints.read().decode(errors="replace").strip()
            last = complaint.splitlines()[-1] if complaint else f"exit status {status}"
            raise RunError(f"ansible-runner could not run the play: {last}")
        return self._exit_status


class ColdLauncher:
    """Starts runs as `ansible-runner run` would."""

    def __init__(self, ansible: AnsibleSettings) -> None:
        """Take the settings that hold for every run."""
        self._ansible = ansible

    @asynccontextmanager
    async def start(self, request: RunRequest, rundir: RunDir) -> AsyncIterator[ColdRun]:
        """Start a run; leaving the block ends whatever of it is still there."""
        spec = json.dumps(self._spec(request, rundir)).encode()
        with tempfile.TemporaryFile() as complaints:
            process = await asyncio.create_subprocess_exec(
                *_PROGRAM,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=complaints,
                start_new_session=True,
                limit=_LINE_LIMIT,
            )
            try:
                assert process.stdin is not None
                process.stdin.write(spec)
                process.stdin.close()
                yield ColdRun(process, complaints)
            finally:
                await end_tree(process, _GRACE)

    def _spec(self, request: RunRequest, rundir: RunDir) -> Json:
        playbook = str(request.content.path)
        roles_path = None
        if request.content.role is not None:
            role = request.content.role
            play = _role_play(role.name, gather_facts=not self._ansible.skip_facts)
            playbook = rundir.write_playbook(play)
            roles_path = str(role.parent)
        return {
            "parent": os.getpid(),
            "private_data_dir": str(rundir.path),
            "ident": request.run_id,
            "playbook": playbook,
            "roles_path": roles_path,
            "verbosity": request.verbosity,
            "envvars": self._environment(rundir, os.environ),
        }

    def _environment(self, rundir: RunDir, environ: Mapping[str, str]) -> dict[str, str]:
        """Return what is added to the operator's environment for a run."""
        tools = str(Path(sys.executable).parent)
        variables = {
            "K8S_AUTH_KUBECONFIG": str(rundir.kubeconfig),
            "KUBECONFIG": str(rundir.kubeconfig),
            # ansible-playbook and its kin of this installation, activated or not.
            "PATH": os.pathsep.join(filter(None, (tools, environ.get("PATH")))),
            # Last in Ansible's search, so that a collection of the user's own wins.
            "PYTHONPATH": os.pathsep.join(
                filter(None, (environ.get("PYTHONPATH"), str(_COLLECTIONS)))
            ),
        }
        if self._ansible.roles_path:
            variables["ANSIBLE_ROLES_PATH"] = _absolute(self._ansible.roles_path)
        if self._ansible.collections_path:
            variables["ANSIBLE_COLLECTIONS_PATH"] = _absolute(self._ansible.collections_path)
        return variables


_COLLECTIONS = Path(__file__).parent.parent / "collections"


def _absolute(paths: str) -> str:
    """Anchor a list of paths where the operator was started: runs have directories of their own."""
    parts = (Path(part).expanduser().absolute() for part in paths.split(os.pathsep) if part)
    return os.pathsep.join(map(str, parts))


def _role_play(role: str, *, gather_facts: bool) -> list[Json]:
    return [{"hosts": "localhost", "gather_facts": gather_facts, "roles": [{"name": role}]}]
