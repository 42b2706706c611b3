"""The fixture `reconcile`: one reconcile of the operator under test, and its outcome.

The operator is a process with one line of JSON for each call. Calls are `{"method": NAME,
"arguments": {...}}`, answers `{"result": ...}` or `{"error": TEXT}`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from operator_runner.testing.outcome import Json, Outcome, outcome_of

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


class Reconcile:
    """Reconciles resources in the namespace of one test.

    Objects are dicts as in manifests. Those without `metadata.namespace` are in the namespace of
    the test. Every method raises OperatorProcessError, for example if the API server refuses an
    object.
    """

    def __init__(self, process: OperatorProcess, namespace: str) -> None:
        """Use `process`; `namespace` exists."""
        self.namespace = namespace
        self.outcomes: list[Outcome] = []
        """All outcomes of the test, in order."""
        self._process = process
        self._applied: dict[tuple[str, str, str, str], Json] = {}

    def __call__(
        self, resource: Mapping[str, Any], objects: Iterable[Mapping[str, Any]] = ()
    ) -> Outcome:
        """Apply `objects` and the resource, with their status, and reconcile the resource once.

        The second call for the same resource is an edit, or a repetition if nothing differs.
        """
        given = [dict(each) for each in objects]
        for each in [*given, dict(resource)]:
            self._applied[_key(each)] = each
        return self._outcome("reconcile", resource, objects=given)

    def delete(self, resource: Mapping[str, Any]) -> Outcome:
        """Delete a resource that was reconciled, and reconcile its deletion: run its finalizer.

        The garbage collector deletes the objects that it owns, but at any time after that.
        """
        return self._outcome("delete", resource)

    def remove_all(self) -> None:
        """Delete everything that was applied, without waiting for finalizers."""
        objects = list(self._applied.values())
        self._process.call("remove", objects=objects, namespace=self.namespace)

    def _outcome(self, method: str, resource: Mapping[str, Any], **arguments: Any) -> Outcome:
        body, begin = dict(resource), self._process.log_size
        answer = self._process.call(method, resource=body, namespace=self.namespace, **arguments)
        outcome = outcome_of(
            answer, body, project=self._process.project, output=self._process.log(begin)
        )
        self.outcomes.append(outcome)
        return outcome


def _key(body: Mapping[str, Any]) -> tuple[str, str, str, str]:
    metadata = body.get("metadata") or {}
    names = (metadata.get("namespace"), metadata.get("name"))
    return str(body.get("apiVersion")), str(body.get("kind")), str(names[0]), str(names[1])
