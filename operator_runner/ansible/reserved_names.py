"""Which names of variables mean something to Ansible: asked of Ansible itself, once."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from operator_runner.ansible.processes import end_tree
from operator_runner.ansible.run_spec import common_environment
from operator_runner.core.errors import RunError
from operator_runner.core.model import ReservedNames, RunContent
from operator_runner.core.settings import AnsibleSettings

_PROGRAM = (sys.executable, "-P", "-m", "operator_runner.ansible.list_reserved_names")
_GRACE = 5.0
"""Seconds between asking the program to end and ending it by force."""


class ReservedNamesLoader:
    """The names, from a process that begins with `start` or when they are first wanted."""

    def __init__(self, ansible: AnsibleSettings, contents: Sequence[Path]) -> None:
        """`contents` are the roles and playbooks that are run: plugins beside them count too."""
        self._ansible = ansible
        self._contents = contents
        self._asking: asyncio.Task[ReservedNames] | None = None

    def start(self) -> None:
        """Begin to ask, so that the answer is there for the first run."""
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask(), name="names of Ansible")

    async def get(self) -> ReservedNames:
        """Return the names. Raises RunError if Ansible gives none; the next call asks again."""
        self.start()
        assert self._asking is not None
        asking = self._asking
        try:
            # One reconcile that is cancelled must not end it for the others.
            return await asyncio.shield(asking)
        except (RunError, OSError) as error:
            if self._asking is asking:
                self._asking = None
            raise RunError(f"the variables of Ansible could not be listed: {error}") from error

    async def close(self) -> None:
        """End the process if it is still there."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    async def _ask(self) -> ReservedNames:
        with tempfile.TemporaryDirectory(prefix="operator-runner-") as scratch:
            answer = await self._run({"ANSIBLE_LOCAL_TEMP": scratch})
        names = json.loads(answer)
        return ReservedNames(frozenset(names["acted_on"]), frozenset(names["keywords"]))

    async def _run(self, environment: dict[str, str]) -> bytes:
        process = await asyncio.create_subprocess_exec(
            *_PROGRAM,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **common_environment(self._ansible), **environment},
            start_new_session=True,
        )
        orders = {"parent": os.getpid(), "contents": [str(path) for path in self._contents]}
        try:
            answer, complaint = await process.communicate(json.dumps(orders).encode())
        finally:
            await end_tree(process, _GRACE)
        if process.returncode:
            lines = complaint.decode(errors="replace").strip().splitlines()
            raise RunError(lines[-1] if lines else f"exit status {process.returncode}")
        return answer


@dataclass(frozen=True, slots=True)
class AnsibleVariableNames:
    """See `reconcile.ports.VariableNames`."""

    _names: ReservedNamesLoader
    _declared: Callable[[RunContent], frozenset[str]]

    async def reserved(self) -> ReservedNames:
        """See the port."""
        return await self._names.get()

    async def declared(self, content: RunContent) -> frozenset[str]:
        """See the port."""
        return await asyncio.to_thread(self._declared, content)
