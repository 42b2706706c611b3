"""List the names of variables that Ansible uses itself, once, with Ansible's own code."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from operator_runner.ansible.child_process import end_tree
from operator_runner.ansible.run_spec import common_environment
from operator_runner.core.errors import RunError
from operator_runner.core.model import ReservedNames, RunContent
from operator_runner.core.settings import AnsibleSettings

_PROGRAM = (sys.executable, "-P", "-m", "operator_runner.ansible.list_reserved_names")
_GRACE_SECONDS = 5.0
"""Time between SIGTERM and SIGKILL of the program."""


class ReservedNamesLoader:
    """Loads the names from a fork server, or in a process of its own at the first `get`."""

    def __init__(self, ansible: AnsibleSettings, contents: Sequence[Path]) -> None:
        """`contents` are the roles and playbooks that are run; plugins next to them count too."""
        self._ansible = ansible
        self._contents = contents
        self._task: asyncio.Task[ReservedNames] | None = None

    def start(self) -> None:
        """Start loading in a process, so that the names are available for the first run."""
        if self._task is None:
            self._begin(self._list())

    def start_from_fork_server(self) -> int:
        """Start loading; return a descriptor to which a fork server writes the names.

        Its owner closes it. If nothing was written then, a process lists the names.
        """
        reader, writer = os.pipe()
        self._begin(self._receive(reader))
        return writer

    async def get(self) -> ReservedNames:
        """Return the names. Raises RunError if they cannot be listed; the next call retries."""
        self.start()
        assert self._task is not None
        task = self._task
        try:
            # A cancelled reconcile must not cancel the task for other reconciles.
            return await asyncio.shield(task)
        except (RunError, OSError) as error:
            if self._task is task:
                self._task = None
            raise RunError(f"cannot list the variables of Ansible: {error}") from error

    async def close(self) -> None:
        """Stop loading."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _begin(self, loading: Coroutine[Any, Any, ReservedNames]) -> None:
        self._task = asyncio.create_task(loading, name="reserved names of Ansible")

    async def _receive(self, descriptor: int) -> ReservedNames:
        stream = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(descriptor, "rb", 0)
        )
        with contextlib.closing(transport):
            output = await stream.read()
        try:
            return _decoded(output)
        except ValueError:  # nothing, or a part: the lister was ended
            return await self._list()

    async def _list(self) -> ReservedNames:
        with tempfile.TemporaryDirectory(prefix="operator-runner-") as temporary:
            return _decoded(await self._run({"ANSIBLE_LOCAL_TEMP": temporary}))

    async def _run(self, environment: dict[str, str]) -> bytes:
        process = await asyncio.create_subprocess_exec(
            *_PROGRAM,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **common_environment(self._ansible), **environment},
            start_new_session=True,
        )
        arguments = {"parent": os.getpid(), "contents": [str(path) for path in self._contents]}
        try:
            stdout, stderr = await process.communicate(json.dumps(arguments).encode())
        finally:
            await end_tree(process, _GRACE_SECONDS)
        if process.returncode:
            lines = stderr.decode(errors="replace").strip().splitlines()
            raise RunError(lines[-1] if lines else f"exit status {process.returncode}")
        return stdout


def _decoded(output: bytes) -> ReservedNames:
    names = json.loads(output)
    return ReservedNames(frozenset(names["acted_on"]), frozenset(names["keywords"]))


@dataclass(frozen=True, slots=True)
class AnsibleVariableNames:
    """See `reconcile.protocols.VariableNames`."""

    _names: ReservedNamesLoader
    _declared: Callable[[RunContent], frozenset[str]]

    async def reserved(self) -> ReservedNames:
        """See `reconcile.protocols.VariableNames`."""
        return await self._names.get()

    async def declared(self, content: RunContent) -> frozenset[str]:
        """See `reconcile.protocols.VariableNames`."""
        return await asyncio.to_thread(self._declared, content)
