"""Runs of roles as the user of the image; see `image_user`.

As a program it is an executor with a fork server: it reads one JSON object a line with `name`,
`tasks` and `files` of a role, runs the role for the resource of that name, and writes the outcome.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import IO, Any

import psutil

from operator_runner.ansible.executor import AnsibleExecutor
from operator_runner.ansible.forkserver.launcher import WarmLauncher
from operator_runner.ansible.rundir import RunDirs
from operator_runner.core.model import GVK, Json, ObjectRef, RunContent, RunEvent, RunRequest
from operator_runner.core.settings import AnsibleSettings
from tests.support.image_user import HOME, WORK_DIR, as_image_user

_SETTINGS = AnsibleSettings(skip_facts=True)


@dataclass(frozen=True, slots=True)
class ImageRuns:
    """Runs roles as the user of the image, one at a time."""

    _requests: IO[str]
    _answers: IO[str]

    def run(self, name: str, tasks: str, *, identifier: str = "", **files: str) -> dict[str, Any]:
        """Run tasks for the resource `name`; `files` are further ones of the role.

        The answer has `successful`, `failures`, `output` (the standard output of the tasks), and
        `memory` (bytes) and `pid` of the operator.
        """
        request = {"name": name, "tasks": tasks, "files": files, "identifier": identifier}
        self._send(request)
        return self.answer()

    def do(self, action: str) -> dict[str, Any]:
        """Have the operator `unload` Ansible or `check` its files; return the `fault`."""
        self._send({"do": action})
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """Return the next answer."""
        line = self._answers.readline()
        assert line, "the operator has ended"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _send(self, request: dict[str, Any]) -> None:
        self._requests.write(json.dumps(request) + "\n")
        self._requests.flush()


@contextmanager
def image_runs() -> Iterator[ImageRuns]:
    """Start an executor as the user of the image."""
    with as_image_user("-m", __name__) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        runs = ImageRuns(process.stdin, process.stdout)
        started = runs.answer()
        assert started["fault"] is None, started
        yield runs


class _Operator:
    """What the program works with."""

    def __init__(self, launcher: WarmLauncher) -> None:
        self.rundirs = RunDirs(
            WORK_DIR, credentials=[HOME.parent / "key"], protected=[HOME], home=HOME
        )
        self._launcher = launcher
        self._executor = AnsibleExecutor(launcher, self.rundirs, _SETTINGS)

    async def answer(self, request: Json) -> Json:
        """Do what is requested."""
        if "do" not in request:
            return await self._run(**request)
        if request["do"] == "unload":
            self._launcher._unload()  # noqa: SLF001 (what its timer calls)
        return {"fault": self.rundirs.check()}

    async def _run(self, name: str, tasks: str, files: dict[str, str], identifier: str) -> Json:
        role = HOME / "roles" / name
        for path, text in {"tasks/main.yml": tasks, **files}.items():
            (role / path).parent.mkdir(parents=True, exist_ok=True)
            (role / path).write_text(text)
        run = RunRequest(
            run_id=identifier or secrets.token_hex(4),
            ref=ObjectRef(GVK("example.com", "v1", "Foo"), "default", name),
            content=RunContent(role=role),
            extra_vars={},
            kubeconfig="the token",
            verbosity=0,
            max_artifacts=3,
            timeout=timedelta(minutes=5),
        )
        events: list[RunEvent] = []
        outcome = await self._executor.run(run, events.append)
        printed = [str(event.data.get("res", {}).get("stdout", "")) for event in events]
        return {
            "successful": outcome.successful,
            "failures": [str(failure) for failure in outcome.failures],
            "output": "\n".join(filter(None, printed)),
            "memory": psutil.Process().memory_full_info().uss,
            "pid": os.getpid(),
        }


async def _serve(answers: IO[str]) -> None:
    def answer(content: Json) -> None:
        answers.write(json.dumps(content) + "\n")
        answers.flush()

    launcher = WarmLauncher(_SETTINGS, lambda _: None, work_dir=WORK_DIR)
    await launcher.open()
    try:
        operator = _Operator(launcher)
        answer({"fault": operator.rundirs.fault})
        while line := await asyncio.to_thread(sys.stdin.readline):
            answer(await operator.answer(json.loads(line)))
    finally:
        await launcher.close()


if __name__ == "__main__":
    printed = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # logs are not answers
    asyncio.run(_serve(printed))
