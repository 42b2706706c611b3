"""The first role of the README, typed as it is printed, outside of the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.doc_commands import Block, Step, blocks, section, steps
from tests.support.operator import REPOSITORY
from tests.support.session import Session
from tests.support.waiting import eventually

# The default ports may be in use by another operator on this machine.
_PORTS = (
    "--metrics-bind-address=0 --health-probe-bind-address=0 --user-metrics-bind-address=0 "
    "--proxy-port=0"
)


@pytest.fixture
def page() -> list[Block]:
    """Return the blocks of the section."""
    return blocks(
        section((REPOSITORY / "README.md").read_text(), "Your first role, in five minutes")
    )


@pytest.fixture
def tutorial() -> list[Step]:
    """Return the commands of the section that are shown with their output."""
    text = (REPOSITORY / "README.md").read_text()
    return steps(section(text, "Your first role, in five minutes"))


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
        "KUBECACHEDIR": str(tmp_path / "kubectl"),
        "ANSIBLE_GATHERING": "explicit",
        # What is imported is compiled then, instead of all collections of `ansible` before; pip
        # takes a false value for its options that begin with `no`.
        "PIP_NO_COMPILE": "0",
        "PYTHONDONTWRITEBYTECODE": "",
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


def test_the_first_role_of_the_readme_works_as_printed(
    page: list[Block], tutorial: list[Step], shell: Session, other_shell: Session, tmp_path: Path
) -> None:
    """The blocks work as printed, in order, and the output is that of the resource."""
    _, cluster, kind, role, create, run, wait, use = (
        block.text for block in page if not block.info
    )
    diff, get, ui = tutorial
    for block in (cluster, kind, role):
        shell.run(block)
    eventually(lambda: shell.attempt("kubectl get greetings")[0], lambda status: status == 0)
    shell.run(create)
    status, printed = shell.attempt(diff.command)
    assert (status, diff.is_shown_by(printed)) == (1, True), printed
    log = shell.go_on(f"{run.strip()} --work-dir={tmp_path / 'work'} {_PORTS}")
    printed = other_shell.run(wait)
    assert "greeting.docs.example.com/first condition met" in printed, log.read_text()
    # The rest of a row depends on the time, and on where the operator runs.
    shown = [line.split()[:3] for line in other_shell.run(get.command).splitlines()]
    assert [line.split()[:3] for line in get.printed] == [row for row in shown if row[0] != "Note:"]
    # A browser that does nothing.
    served = other_shell.go_on(f"BROWSER=true {ui.command}")
    line = eventually(served.read_text, lambda text: "Ctrl-C" in text).splitlines()[0]
    with urllib.request.urlopen(line.split()[1], timeout=60) as answer:
        assert '<h1 id="title-resources"' in answer.read().decode()
    assert "\nHello, you!\n" in f"\n{other_shell.run(use)}", log.read_text()
    gone = "kubectl get configmap --ignore-not-found first"
    eventually(lambda: other_shell.run(gone), lambda output: output == "")
    assert shell.end_background() == [0], log.read_text()
