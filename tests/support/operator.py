"""The operator as a process of its own, as a user starts it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any, Self

from prometheus_client.parser import text_string_to_metric_families

from operator_runner.core.model import Trigger
from operator_runner.devcluster import network
from tests.support.waiting import eventually

REPOSITORY = Path(__file__).parents[2]
_TIMERS = {trigger.value for trigger in (Trigger.RETRY, Trigger.REQUEUE, Trigger.PERIOD)}


class OperatorProcess:
    """A process with the flags, ports and log that ansible-operator has too."""

    def __init__(
        self, program: Path, project: Path, scratch: Path, environment: Mapping[str, str]
    ) -> None:
        """Prepare; nothing is started. The log is written to `scratch`."""
        self.project, self.scratch = project, scratch
        self.log_file = scratch / "operator.log"
        self._metrics_port, self._probe_port = free_port(), free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.environment = {**os.environ, **environment}
        self._command = [
            str(program),
            "run",
            f"--watches-file={project / 'watches.yaml'}",
            f"--metrics-bind-address=127.0.0.1:{self._metrics_port}",
            f"--health-probe-bind-address=127.0.0.1:{self._probe_port}",
            "--zap-encoder=json",
        ]

    def start(self, *flags: str, wait: bool = True, output: int | None = None) -> Self:
        """Start the process with further flags and wait until it is ready.

        `output` is a descriptor that takes the place of the log file.
        """
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, *flags],
                cwd=self.project,
                env=self.environment,
                stdout=log if output is None else output,
                stderr=log if output is None else output,
            )
        if wait:
            eventually(lambda: self.probe("readyz"), lambda code: code == 200, details=self.log)
        return self

    @property
    def pid(self) -> int:
        """The pid of the running process."""
        assert self._process is not None
        return self._process.pid

    def status(self) -> int | None:
        """Return the exit status of a process that has ended on its own, else None."""
        return None if self._process is None else self._process.poll()

    @property
    def metrics_address(self) -> str:
        """`host:port` of /metrics."""
        return f"127.0.0.1:{self._metrics_port}"

    @property
    def probe_address(self) -> str:
        """`host:port` of the probes."""
        return f"127.0.0.1:{self._probe_port}"

    def terminate(self, seconds: float = 180, number: signal.Signals = signal.SIGTERM) -> int:
        """End it as Kubernetes does, or by another signal; return the exit status."""
        return self._end(number, seconds)

    def wait(self, seconds: float = 180) -> int:
        """Wait until it ends by itself; return the exit status."""
        assert self._process is not None
        status = self._process.wait(timeout=seconds)
        self._process = None
        return status

    def kill(self) -> None:
        """End it without warning."""
        self._end(signal.SIGKILL, 60)

    def _end(self, number: signal.Signals, seconds: float) -> int:
        if self._process is None:
            return 0
        self._process.send_signal(number)
        return self.wait(seconds)

    def probe(self, name: str) -> int:
        """Return the status of a probe; 0 without a response."""
        return _fetch(f"http://127.0.0.1:{self._probe_port}/{name}")[0]

    def metric(self, *names: str, **labels: str) -> float:
        """Return the sum of the samples of these names whose labels fit, in one scrape."""
        url = f"http://127.0.0.1:{self._metrics_port}/metrics"
        # Without a response there is no number, and 0 would pass for one.
        _, text = eventually(lambda: _fetch(url), lambda answer: answer[0] == 200, details=self.log)
        return sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name in names and labels.items() <= sample.labels.items()
        )

    def log(self) -> str:
        """Return the log up to its last complete line: more may be written at the same time."""
        text = self.log_file.read_bytes() if self.log_file.exists() else b""
        return text[: text.rfind(b"\n") + 1].decode()


class Operator(OperatorProcess):
    """One operator process with its project, log, ports and work dir."""

    def __init__(
        self,
        project: Path,
        kubeconfig: Path,
        namespace: str,
        scratch: Path,
        environment: dict[str, str],
        *,
        program: Path = Path(sys.executable).parent / "operator-runner",
    ) -> None:
        """Prepare; nothing is started. The operator watches `namespace`."""
        defaults = {"WATCH_NAMESPACE": namespace, "ANSIBLE_GATHERING": "explicit"}
        super().__init__(program, project, scratch, defaults | environment)
        self._command += [
            f"--kubeconfig={kubeconfig}",
            f"--work-dir={scratch / 'work'}",
            f"--user-metrics-bind-address=127.0.0.1:{free_port()}",
            "--proxy-port=0",
            "--webhook-port=0",
        ]

    def lines(self, *messages: str) -> list[dict[str, Any]]:
        """Return the log lines with one of these messages, in order."""
        found = [json.loads(line) for line in self.log().splitlines() if line.startswith("{")]
        return [line for line in found if line.get("msg") in messages]

    def runs_by_timers(self, namespace: str) -> list[str]:
        """Return the causes of those runs in a namespace that no event of an object has led to."""
        return [
            line["cause"]
            for line in self.lines("Reconciling")
            if line["namespace"] == namespace
            and all(each.partition(":")[0] in _TIMERS for each in line["cause"].split("; "))
        ]


def copy_project(target: Path) -> Path:
    """Copy the nginx operator's project so that a test can edit it."""
    target.mkdir(parents=True)
    shutil.copy(REPOSITORY / "watches.yaml", target)
    shutil.copytree(REPOSITORY / "roles", target / "roles")
    return target


def free_port() -> int:
    """Return a port of 127.0.0.1 that no other test gets."""
    return network.free_ports("127.0.0.1", 1)[0]


def _fetch(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except (OSError, HTTPException):
        # It may end during an answer.
        return 0, ""
