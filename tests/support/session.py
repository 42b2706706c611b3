"""One shell that keeps its folder and its variables from command to command, as a user's does."""

from __future__ import annotations

import os
import selectors
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.doc_commands import Mode, Step
from tests.support.waiting import eventually

USE_VENV = (
    f"--old-file=.venv/.installed-{sys.version_info[0]}.{sys.version_info[1]}",
    f"PYTHON={sys.executable}",
)
"""Arguments of make: the virtual environment is the one of the tests, of any age."""
_END = "\x1e"
_CURL_HOME = Path(__file__).parent / "curl"
"""Directory of curl's settings: it fails early, and the test retries."""


class CommandError(AssertionError):
    """The output of a command differs from that in the page."""


class Session:
    """A bash in a folder; `replace` has text of the page that a test must replace."""

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str],
        replace: Mapping[str, str] | None = None,
        *,
        logs: Path | None = None,
    ) -> None:
        """Start the shell. Background commands log into `logs`, else `folder`."""
        self._replace = dict(replace or {})
        self._logs = logs or folder
        self._background: list[tuple[int, Path]] = []
        self._shell = subprocess.Popen(
            ["bash", "--norc"],
            cwd=folder,
            env={**os.environ, "CURL_HOME": str(_CURL_HOME), **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def run(self, command: str, *, seconds: float = 300) -> str:
        """Execute a command and return its output; its exit status must be 0."""
        status, output = self.attempt(command, seconds=seconds)
        if status:
            raise CommandError(f"{command}\nexit status {status}:\n{output}{self._told()}")
        return output

    def attempt(self, command: str, *, seconds: float = 300) -> tuple[int, str]:
        """Execute a command; return its exit status and output."""
        for text, instead in self._replace.items():
            command = command.replace(text, instead)
        assert self._shell.stdin is not None
        script = f"{{ {command}\n}} </dev/null\nprintf '{_END}%d{_END}' $?\n"
        self._shell.stdin.write(script.encode())
        self._shell.stdin.flush()
        output, status = self._read(command, seconds).split(_END)[:2]
        return int(status), output

    def go_on(self, command: str) -> Path:
        """Start a command in the background; return its log."""
        log = self._logs / f"background-{len(self._background)}.log"
        log.touch()
        pid = int(self.run(f"setsid bash -c {shlex.quote(command)} >{log} 2>&1 &\necho $!"))
        self._background.append((pid, log))
        return log

    def follow(self, steps: Sequence[Step]) -> None:
        """Execute the steps of a page; those for the end also if one before fails."""
        try:
            for step in steps:
                if step.mode is not Mode.CLEANUP:
                    self._take(step)
        finally:
            self.end_background()
            for step in steps:
                if step.mode is Mode.CLEANUP:
                    self._take(step)

    def end_background(self) -> list[int]:
        """Terminate background commands as Kubernetes does; return the exit statuses."""
        ends = [f"kill -TERM -- -{pid}; wait {pid}" for pid, _ in self._background]
        self._background.clear()
        return [self.attempt(end)[0] for end in ends]

    def end(self) -> None:
        """End the shell and its background commands."""
        self.end_background()
        if self._shell.poll() is None:
            os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.communicate()

    def _take(self, step: Step) -> None:
        where = f"line {step.line}: {step.command}"
        if step.mode is Mode.RESTART:
            self.end_background()
        if step.mode in {Mode.BACKGROUND, Mode.RESTART}:
            log = self.go_on(step.command)
            eventually(log.read_text, step.is_shown_by, details=lambda: where)
        elif step.only_looks:
            # The expected state may take some time.
            _, output = eventually(
                lambda: self.attempt(step.command),
                lambda seen: seen[0] == 0 and step.is_shown_by(seen[1]),
                details=lambda: where + self._told(),
            )
            self._replace |= step.run_ids(output)
        elif not step.is_shown_by(output := self.run(step.command)):
            expected = "\n".join(step.printed)
            raise CommandError(f"{where}\nprints\n{output}and not\n{expected}{self._told()}")

    def _read(self, command: str, seconds: float) -> str:
        assert self._shell.stdout is not None
        deadline, output = time.monotonic() + seconds, b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._shell.stdout, selectors.EVENT_READ)
            while output.count(_END.encode()) < 2:
                if not selector.select(deadline - time.monotonic()):
                    raise CommandError(f"{command}\nnot within {seconds:g} s:\n{output.decode()}")
                piece = os.read(self._shell.stdout.fileno(), 65536)
                if not piece:
                    raise CommandError(f"{command}\nended the shell:\n{output.decode()}")
                output += piece
        return output.decode()

    def _told(self) -> str:
        return "".join(f"\n== {log}\n{log.read_text()[-4000:]}" for _, log in self._background)
