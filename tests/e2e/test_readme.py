"""The first role of the README, typed as it stands there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.doc_commands import blocks, section
from tests.support.operator import REPOSITORY
from tests.support.session import Session
from tests.support.waiting import eventually

_ENVIRONMENT = ". .venv/bin/activate"
# The ports of the defaults may be taken by an operator that somebody runs on this machine.
_PORTS = "--metrics-bind-address=0 --health-probe-bind-address=0 --proxy-port=0"


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Session]:
    """Give a user's shell with the project's environment; its cluster is taken away."""
    tools = str(Path(sys.executable).parent)
    environment = {"XDG_STATE_HOME": str(tmp_path / "state"), "ANSIBLE_GATHERING": "explicit"}
    prepared = {"make venv\n": "", f"{_ENVIRONMENT}\n": "", f"{_ENVIRONMENT} && ": ""}
    with Session(tmp_path, environment, prepared) as shell:
        shell.run(f'export PATH="{tools}:$PATH"')
        try:
            yield shell
        finally:
            shell.run("operator-runner cluster down")


def test_the_first_role_of_the_readme(shell: Session, tmp_path: Path) -> None:
    """Each block works as printed, and the resource comes out as promised."""
    page = section((REPOSITORY / "README.md").read_text(), "Your first role, in five minutes")
    cluster, kind, role, watches, run, use = (block.text for block in blocks(page))
    shell.run(cluster)
    for block in (kind, role, watches):
        shell.run(block)
    log = shell.go_on(f"{run.strip()} --work-dir={tmp_path / 'work'} {_PORTS}")
    applied, rest = use.split("kubectl get configmap")
    shell.run(applied)
    look, *others = f"kubectl get configmap{rest}".splitlines()
    eventually(
        lambda: shell.attempt(look)[1],
        lambda told: told == "Hello, you!\n",
        told=log.read_text,
    )
    for line in others:
        shell.run(line)
    gone = "kubectl get configmap --ignore-not-found first"
    eventually(lambda: shell.run(gone), lambda told: told == "")
    assert shell.end_background() == [0], log.read_text()
