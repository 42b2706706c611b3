"""The first role of the README, typed as it is printed, outside of the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.doc_commands import Block, blocks, section
from tests.support.operator import REPOSITORY
from tests.support.session import Session
from tests.support.waiting import eventually

# The default ports may be in use by another operator on this machine.
_PORTS = "--metrics-bind-address=0 --health-probe-bind-address=0 --proxy-port=0"


@pytest.fixture
def page() -> list[Block]:
    """Return the blocks of the section."""
    return blocks(
        section((REPOSITORY / "README.md").read_text(), "Your first role, in five minutes")
    )


@pytest.fixture
def environment(tmp_path: Path, page: list[Block]) -> dict[str, str]:
    """Install operator-runner with pipx, as the first block does, and nothing else on the PATH."""
    python = tmp_path / "pipx" / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", python.parent.parent], check=True)
    subprocess.run([python, "-m", "pip", "--quiet", "install", "pipx"], check=True)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "pipx").symlink_to(python.with_name("pipx"))
    checkout = str(REPOSITORY)
    outside = [part for part in os.environ["PATH"].split(":") if not part.startswith(checkout)]
    environment = {
        "PATH": ":".join([str(tmp_path / "bin"), *outside]),
        "PIPX_HOME": str(tmp_path / "pipx"),
        "PIPX_BIN_DIR": str(tmp_path / "bin"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "ANSIBLE_GATHERING": "explicit",
        "VIRTUAL_ENV": "",
    }
    with Session(REPOSITORY, environment) as in_checkout:
        in_checkout.run(page[0].text, seconds=540)
    return environment


@pytest.fixture
def shell(tmp_path: Path, environment: dict[str, str]) -> Iterator[Session]:
    """Give a user's shell in a directory of its own; the cluster is removed."""
    home = tmp_path / "anywhere"
    home.mkdir()
    with Session(home, environment, logs=tmp_path) as shell:
        program = shell.run("command -v operator-runner").strip()
        assert program == str(tmp_path / "bin" / "operator-runner")
        try:
            yield shell
        finally:
            shell.run("operator-runner cluster down")


@pytest.fixture
def other_shell(tmp_path: Path, environment: dict[str, str]) -> Iterator[Session]:
    """Give the second shell, in another directory."""
    home = tmp_path / "elsewhere"
    home.mkdir()
    with Session(home, environment) as shell:
        yield shell


@pytest.mark.timeout(1800)
def test_the_first_role_of_the_readme(
    page: list[Block], shell: Session, other_shell: Session, tmp_path: Path
) -> None:
    """The blocks work as printed, in order, and the output is that of the resource."""
    _, cluster, kind, role, watches, run, use = (block.text for block in page)
    for block in (cluster, kind, role, watches):
        shell.run(block)
    log = shell.go_on(f"{run.strip()} --work-dir={tmp_path / 'work'} {_PORTS}")
    printed = other_shell.run(use)
    assert "greeting.example.com/first condition met\nHello, you!\n" in printed, log.read_text()
    get_deleted = "kubectl get configmap --ignore-not-found first"
    eventually(lambda: other_shell.run(get_deleted), lambda output: output == "")
    assert shell.end_background() == [0], log.read_text()
