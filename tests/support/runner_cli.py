"""`operator-runner` as a user calls it, for one kubeconfig and namespace."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.support.command import run_command


@dataclass(frozen=True)
class RunnerCli:
    """Runs commands for resources."""

    kubeconfig: Path
    namespace: str

    def run(self, command: str, *args: str) -> subprocess.CompletedProcess[str]:
        """Run a command and return; the exit status is the caller's business."""
        where = f"--namespace={self.namespace}", f"--kubeconfig={self.kubeconfig}"
        return run_command([command, *args, *where])

    def __call__(self, command: str, *args: str) -> str:
        """Run a command and return its output; fail the test if it fails."""
        done = self.run(command, *args)
        assert done.returncode == 0, f"{command} {args}: {done.stdout}{done.stderr}"
        return done.stdout
