"""The shell of a role author: `operator-runner` and `kubectl` on the PATH, and a cluster."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from operator_runner.devcluster import Cluster
from tests.support.session import Session

# The default ports may be in use by another operator on this machine.
_PORTS = (
    "--metrics-bind-address=0 --health-probe-bind-address=0 --user-metrics-bind-address=0 "
    "--proxy-port=0 --webhook-port=0"
)
_WORK_DIR = "/tmp/ansible-operator/runner"


def author_shell(
    folder: Path, cluster: Cluster, scratch: Path, replace: Mapping[str, str] | None = None
) -> Session:
    """Return a shell in `folder`; `run` uses free ports and a work dir in `scratch`."""
    tools, work_dir = scratch / "bin", scratch / "work"
    tools.mkdir()
    program = tools / "operator-runner"
    real = Path(sys.executable).parent / "operator-runner"
    program.write_text(
        "#!/bin/sh\n"
        f'case "$1" in run) exec {real} "$@" --work-dir={work_dir} {_PORTS};; esac\n'
        f'exec {real} "$@"\n'
    )
    program.chmod(0o755)
    environment = {"KUBECONFIG": str(cluster.kubeconfig), "ANSIBLE_GATHERING": "explicit"}
    shell = Session(
        folder, environment, {_WORK_DIR: str(work_dir), **(replace or {})}, logs=scratch
    )
    shell.run(f'export PATH="{tools}:{cluster.bin}:{real.parent}:$PATH"')
    return shell
