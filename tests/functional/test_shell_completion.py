"""Completion in bash, zsh and fish, typed in each shell."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pexpect
import pytest
import yaml

from tests.functional.test_operator import echo
from tests.support.debian import program
from tests.support.kubectl import Kubectl
from tests.support.operator import REPOSITORY
from tests.support.scaffold import OPERATOR_RUNNER

PAGE = REPOSITORY / "docs" / "commands.md"
SHELLS = {
    "bash": ["--norc", "--noprofile", "-i"],
    "zsh": ["--no-rcs", "-i"],
    "fish": ["--no-config", "--interactive"],
}
"""Shells without the settings of the user, and their arguments."""
_SECONDS = 180


def setup_of(shell: str) -> str:
    """Return the line of the page for this shell."""
    [line] = [each for each in PAGE.read_text().splitlines() if f"{shell}_source" in each]
    return line.partition(" #")[0].strip()


@pytest.fixture
def environment(control_plane: Path, tmp_path: Path) -> dict[str, str]:
    """Give the programs in PATH, the cluster, and an empty home."""
    return os.environ | {
        "PATH": f"{OPERATOR_RUNNER.parent}:{os.environ['PATH']}",
        "KUBECONFIG": str(control_plane),
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_DATA_HOME": str(tmp_path / "data"),
        "TERM": "dumb",
    }


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shell_completes_what_is_typed(
    shell: str, environment: dict[str, str], kubectl: Kubectl, control_plane: Path, tmp_path: Path
) -> None:
    """Commands, options, values, files, namespaces, kinds and names: Tab after each of them."""
    kubectl.apply(echo("page"))
    (tmp_path / "cluster-of-the-test").write_bytes(control_plane.read_bytes())
    del environment["KUBECONFIG"]
    file = tmp_path / "tree.yaml"
    words = (
        "operator-runner",
        "tre\t",
        f"--kubeconfig {tmp_path}/cluster-of\t",
        f"-n {kubectl.namespace[:-2]}\t",
        "--output y\t",
        "--all-n\t",
        "echoe\t",
        f">{file}",
    )
    terminal = pexpect.spawn(
        program(shell),
        SHELLS[shell],
        env=environment,
        encoding="utf-8",
        timeout=_SECONDS,
        dimensions=(50, 400),
    )
    try:
        for line in (setup_of(shell), " ".join(words)):
            # Shells complete and execute what is typed in this order; the text is not in the echo.
            terminal.send(f"{line}\r")
            terminal.send(
                "echo fin''ished $?\r" if shell != "fish" else "echo fin''ished $status\r"
            )
            terminal.expect(r"finished \d")
            assert terminal.after == "finished 0", terminal.before
        tree = yaml.safe_load(file.read_text())
        assert (tree["kind"], tree["name"]) == ("Echo", "page")
    finally:
        terminal.close(force=True)


def test_the_resource_of_one_reconcile_is_completed(
    environment: dict[str, str], kubectl: Kubectl
) -> None:
    """The value of `run --once`, in the namespace before the cursor."""
    kubectl.apply(echo("page"))
    words = ("operator-runner", "run", "-n", kubectl.namespace, "--once", "ech")
    done = subprocess.run(
        [OPERATOR_RUNNER],
        env=environment
        | {
            "_OPERATOR_RUNNER_COMPLETE": "bash_complete",
            "COMP_WORDS": "\n".join(words),
            "COMP_CWORD": "5",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["plain,echoes/page"]


def test_nothing_is_completed_without_a_cluster(environment: dict[str, str]) -> None:
    """And nothing is printed that the terminal would show in the line."""
    done = subprocess.run(
        [OPERATOR_RUNNER],
        env=environment
        | {
            "KUBECONFIG": "/does/not/exist",
            "_OPERATOR_RUNNER_COMPLETE": "bash_complete",
            "COMP_WORDS": "operator-runner\nget\n",
            "COMP_CWORD": "2",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout.strip(), done.stderr) == ("", "")
