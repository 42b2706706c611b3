"""Runs as Jobs of a whole operator; a small kubelet of this machine has their Pods."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from operator_runner.kube.api import Api
from operator_runner.kube.session import connect
from tests.functional.test_operator import KIND, ROLE, echo
from tests.support.kubectl import Kubectl
from tests.support.kubelet import kubelet
from tests.support.operator import Operator, free_port
from tests.support.waiting import eventually

TASKS = """
- {{name: Count, ansible.builtin.shell: 'echo run >> {out}/count'}}
- {{name: Wait, ansible.builtin.wait_for: {{path: '{out}/go', timeout: 300, sleep: 1}}}}
- name: Read through the next operator
  kubernetes.core.k8s_info: {{kind: ConfigMap, name: a}}
"""


async def test_an_operator_that_is_told_to_end_leaves_its_job_to_the_next_one(
    kubectl: Kubectl,
    control_plane: Path,
    project: Path,
    tmp_path: Path,
    operator: Operator,
) -> None:
    """Nothing ends the play, and the role runs once more only after its success."""
    (project / ROLE).write_text(TASKS.format(out=tmp_path))
    job = {"image": "example.com/ee:1", "namespace": kubectl.namespace}
    entry = {"group": "test.example.com", "version": "v1", "kind": "Echo", "role": "echo"}
    (project / "watches.yaml").write_text(json.dumps([entry | {"execution": {"job": job}}]))
    flags = ("--jobs-host=127.0.0.1", f"--jobs-port={free_port()}")
    connection = await connect(control_plane, user_agent="operator-runner/test")
    try:
        async with kubelet(Api(connection), kubectl.namespace, tmp_path):
            await asyncio.to_thread(_restart, operator, kubectl, tmp_path, flags)
    finally:
        await connection.close()


def _restart(operator: Operator, kubectl: Kubectl, out: Path, flags: tuple[str, ...]) -> None:
    count = out / "count"
    flags = (*flags, "--graceful-shutdown-timeout=1s")
    operator.start(*flags)
    kubectl.apply(echo())
    eventually(count.exists, details=operator.log)
    assert operator.terminate() == 0
    operator.start(*flags)
    eventually(lambda: operator.lines("Adopted the Job of an earlier run"), details=operator.log)
    (out / "go").touch()
    kubectl("wait", "--for=condition=Successful", f"{KIND}/a", "--timeout=300s")
    # The next run is that for changes which nothing has observed.
    eventually(lambda: "run\nrun\n" in count.read_text(), details=operator.log)
    assert operator.terminate() == 0
