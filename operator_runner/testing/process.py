"""The process of the operator under test, and its methods: one line of JSON for each call.

Calls are `{"method": NAME, "arguments": {...}}`, answers `{"result": ...}` or `{"error": TEXT}`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_END_SECONDS = 30.0
"""Time that the process may take to end, before it is killed."""
_LOG_BYTES = 16 * 1024
"""Length of the log in an error message: its end."""


class OperatorProcessError(Exception):
    """The operator cannot be started, or cannot do what a test asks for; has the reason."""


class OperatorProcess:
    """An operator that reconciles on request. It is started at the first call, and kept warm."""

    def __init__(
        self,
        project: Path,
        kubeconfig: Path,
        scratch: Path,
        flags: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Run the operator of `project` with `flags` of `operator-runner run`.

        `environment` has further variables, as the operator's container has them. `scratch` is an
        empty directory for its files and its log.
        """
        self.project = project
        self._kubeconfig = kubeconfig
        self._scratch = scratch
        self._flags = tuple(flags)
        self._environment = dict(environment or {})
        self._log = scratch / "operator.log"
        self._process: subprocess.Popen[str] | None = None

    def call(self, method: str, **arguments: Any) -> Any:
        """Call a method of `operator_runner.testing.server` and return its result.

        Raises OperatorProcessError.
        """
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps({"method": method, "arguments": arguments}) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            status = process.wait()
            raise OperatorProcessError(
                f"The operator has ended with status {status}:\n{self.log()[-_LOG_BYTES:]}"
            )
        answer = json.loads(line)
        if "error" in answer:
            raise OperatorProcessError(answer["error"])
        return answer["result"]

    def log(self, since: int = 0) -> str:
        """Return the log and the output of plays, from this byte on."""
        if not self._log.exists():
            return ""
        with self._log.open("rb") as stream:
            stream.seek(since)
            return stream.read().decode(errors="replace")

    @property
    def log_size(self) -> int:
        """The length of the log in bytes."""
        return self._log.stat().st_size if self._log.exists() else 0

    def stop(self) -> None:
        """End the process, if it was started."""
        if self._process is None:
            return
        process, self._process = self._process, None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.close()
            process.wait(_END_SECONDS)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            process.kill()
            process.wait()
        finally:
            process.stdout.close()

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            # It watches the namespaces of all tests.
            environment = {k: v for k, v in os.environ.items() if k != "WATCH_NAMESPACE"}
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    self._command(),
                    cwd=self.project,
                    env=environment | self._environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    # Ctrl-C ends the tests, which end the operator.
                    start_new_session=True,
                )
        return self._process

    def _command(self) -> Sequence[str]:
        return (
            sys.executable,
            # Its output is part of the outcome, as soon as the answer is here.
            "-u",
            "-m",
            "operator_runner.testing.server",
            # Beside an operator on this machine: neither its ports nor its Lease nor its files.
            "--once=kind/name",
            "--zap-encoder=console",
            f"--kubeconfig={self._kubeconfig}",
            f"--work-dir={self._scratch / 'work'}",
            *self._flags,
        )
