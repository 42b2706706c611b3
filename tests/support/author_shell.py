"""The shell of a role author: `operator-runner` and `kubectl` on the PATH, and a cluster."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from operator_runner.devcluster import Cluster
from tests.support.session import Session

# The default ports may be in use by another operator on this machine.
_PORTS = (
    "--metrics-bind-address=127.0.0.1:0 --health-probe-bind-address=0 "
    "--user-metrics-bind-address=0 --proxy-port=0 --webhook-port=0"
)
_WORK_DIR = "/tmp/ansible-operator/runner"


def author_shell(
    folder: Path, cluster: Cluster, scratch: Path, replace: Mapping[str, str] | None = None
) -> Session:
    """Return a shell in `folder`; `run` uses free ports and a work dir in `scratch`.

    `get` and `runs` find the operator there, as they find that of a user in the default work dir.
    `suspend` and `resume` wait for a busy operator: otherwise the run of an edit that a page makes
    next would have the resume as a cause too.
    """
    tools, work_dir = scratch / "bin", scratch / "work"
    tools.mkdir()
    work_dir.mkdir(mode=0o700)
    program = tools / "operator-runner"
    real = Path(sys.executable).parent / "operator-runner"
    program.write_text(
        "#!/bin/sh\n"
        'case "$1" in\n'
        f'run) exec {real} "$@" --work-dir={work_dir} {_PORTS};;\n'
        f'get|runs) exec {real} "$@" --work-dir={work_dir};;\n'
        f'suspend|resume) exec {real} "$@" --timeout=180s;;\n'
        "esac\n"
        f'exec {real} "$@"\n'
    )
    program.chmod(0o755)
    environment = {
        "KUBECONFIG": str(cluster.kubeconfig),
        # Another cluster may have had the address, and kinds of other versions.
        "KUBECACHEDIR": str(scratch / "kubectl"),
        "ANSIBLE_GATHERING": "explicit",
    }
    shell = Session(
        folder, environment, {_WORK_DIR: str(work_dir), **(replace or {})}, logs=scratch
    )
    shell.run(f'export PATH="{tools}:{cluster.bin}:{real.parent}:$PATH"')
    return shell
