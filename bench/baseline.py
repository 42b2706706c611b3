"""Run the operator's play with `ansible-runner run`, for comparison."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from bench.accounting import child_seconds
from bench.environment import Site
from bench.errors import BenchError
from bench.figures import Cost
from operator_runner.ansible.run_spec import COLLECTIONS


class AnsibleRunner:
    """Runs the same play with the same variables and inventory, without the operator's proxy."""

    def __init__(self, site: Site, kubeconfig: Path) -> None:
        """Copy the private data dir of the only resource of the site."""
        (written,) = (path.parent.parent for path in site.folders[0].rglob("env/extravars"))
        self._folder = site.scratch / "ansible-runner"
        for part in ("env", "inventory", "project"):
            shutil.copytree(written / part, self._folder / part)
        (self._folder / "env" / "cmdline").write_text("-vv")
        tools = str(Path(sys.executable).parent)
        self._environment = os.environ | {
            "PATH": os.pathsep.join([tools, os.environ.get("PATH", os.defpath)]),
            "ANSIBLE_ROLES_PATH": str(site.operator.project / "roles"),
            "PYTHONPATH": str(COLLECTIONS),
            "HOME": str(site.folders[2]),
            "TMPDIR": str(site.folders[1]),
            "KUBECONFIG": str(kubeconfig),
            "K8S_AUTH_KUBECONFIG": str(kubeconfig),
        }

    def run(self) -> Cost:
        """Run once. Raises BenchError if the play fails."""
        program = Path(sys.executable).with_name("ansible-runner")
        (playbook,) = (self._folder / "project").iterdir()
        before, begin = child_seconds(), time.monotonic()
        done = subprocess.run(
            [program, "run", self._folder, "--playbook", playbook.name, "--rotate-artifacts=20"],
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        cost = Cost(time.monotonic() - begin, child_seconds() - before)
        if done.returncode:
            raise BenchError(f"ansible-runner run: {done.stdout}{done.stderr}")
        return cost
