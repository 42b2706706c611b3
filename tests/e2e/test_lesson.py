"""The lesson of docs/nginx-operator.md, typed as it stands there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from operator_runner.devcluster import Cluster
from tests.support.kubectl import Kubectl
from tests.support.lesson import steps
from tests.support.operator import REPOSITORY
from tests.support.session import Session

PAGE = REPOSITORY / "docs" / "nginx-operator.md"
# The ports of the defaults may be taken by an operator that somebody runs on this machine.
_PORTS = (
    "--metrics-bind-address=0 --health-probe-bind-address=0 --user-metrics-bind-address=0 "
    "--proxy-port=0 --webhook-port=0"
)


@pytest.fixture
def shell(
    cluster: Cluster, kubectl: Kubectl, nginx_image: str, tmp_path: Path
) -> Iterator[Session]:
    """Give a shell in the checkout whose kubectl talks to a new namespace of the cluster."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_bytes(cluster.kubeconfig.read_bytes())
    environment = {
        "KUBECONFIG": str(kubeconfig),
        "RELATED_IMAGE_NGINX": nginx_image,
        "WATCH_NAMESPACE": kubectl.namespace,
        "ANSIBLE_GATHERING": "explicit",
    }
    prepared = {
        "make run": f"operator-runner run --work-dir={tmp_path / 'work'} {_PORTS}",
        # The virtual environment is there, whatever its age.
        "make ": "make --old-file=.venv/.installed ",
    }
    with Session(REPOSITORY, environment, prepared, logs=tmp_path) as shell:
        tools = f"{cluster.home.tools}:{Path(sys.executable).parent}"
        shell.run(f'export PATH="{tools}:$PATH"')
        shell.run(f"kubectl config set-context --current --namespace={kubectl.namespace}")
        yield shell


def test_the_lesson(shell: Session) -> None:
    """Each command does what the page says."""
    lesson = steps(PAGE.read_text())
    assert lesson
    shell.follow(lesson)
