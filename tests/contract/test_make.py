"""The commands of the Makefile, those of this project and of a new one."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.operator import REPOSITORY
from tests.support.scaffold import init


def make(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run make in a folder; the exit status is the caller's business."""
    return subprocess.run(
        ["make", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.fixture(params=["this", "new"])
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Give the folder of this project, and that of one just made."""
    if request.param == "this":
        return REPOSITORY
    init(tmp_path / "fresh")
    return tmp_path / "fresh"


def test_help_explains_every_target(project: Path) -> None:
    """No target that is meant for people is missing, each has its sentence."""
    targets = re.findall(r"^\.PHONY: (\S+)", (project / "Makefile").read_text(), re.MULTILINE)
    explained = re.findall(r"^  (\S+) +\S", make(project, "help").stdout, re.MULTILINE)
    assert set(targets) - {"all"} == set(explained)


def test_a_push_without_a_registry_is_refused(project: Path) -> None:
    """The default image cannot be pushed: the message has a hint, and nothing is pushed."""
    done = make(project, "docker-push", "CONTAINER_TOOL=echo")
    assert done.returncode != 0
    assert done.stdout == ""
    assert "IMG is controller:latest: the name has no registry" in done.stderr
    assert "make docker-build docker-push IMG=registry.example.com/team/" in done.stderr


def test_a_push_that_is_denied_leads_to_the_login(project: Path) -> None:
    """The output of the tool is kept, followed by the hint."""
    done = make(project, "docker-push", "IMG=sample/nginx-operator:v0.1", "CONTAINER_TOOL=false")
    assert done.returncode != 0
    assert "If access was denied, run false login." in done.stderr


def test_a_push_names_the_image(project: Path) -> None:
    """IMG goes to the tool as it is."""
    done = make(project, "docker-push", "IMG=sample/nginx-operator:v0.1", "CONTAINER_TOOL=echo")
    assert (done.returncode, done.stdout) == (0, "push sample/nginx-operator:v0.1\n")
