"""The tutorial of docs/nginx-operator.md, with its commands unchanged."""

from __future__ import annotations

import secrets
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.doc_commands import steps
from tests.support.operator import REPOSITORY
from tests.support.session import USE_VENV, Session

PAGE = REPOSITORY / "docs" / "nginx-operator.md"
# The default ports may be in use by another operator on this machine.
_PORTS = (
    "--metrics-bind-address=0 --health-probe-bind-address=0 --user-metrics-bind-address=0 "
    "--proxy-port=0 --webhook-port=0"
)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Session]:
    """Return a shell in the checkout, with names and paths of the test."""
    cluster = f"lesson-{secrets.token_hex(3)}"
    prepared = {
        "operator-runner run": f"operator-runner run --work-dir={tmp_path / 'work'} {_PORTS}",
        **{
            f"cluster {command}": f"cluster {command} --name={cluster}"
            for command in ("up", "env", "load", "down")
        },
        "build": str(tmp_path / "build"),
        "make bundle ": f"make {shlex.join(USE_VENV)} bundle ",
    }
    environment = {"ANSIBLE_GATHERING": "explicit", "KUBECACHEDIR": str(tmp_path / "kubectl")}
    # The page makes a bundle with another image, and the checkout is to stay as it is.
    bundle = REPOSITORY / "bundle"
    kept = shutil.copytree(bundle, tmp_path / "bundle")
    try:
        with Session(REPOSITORY, environment, prepared, logs=tmp_path) as shell:
            shell.run(f'export PATH="{Path(sys.executable).parent}:$PATH"')
            yield shell
    finally:
        shutil.rmtree(bundle)
        shutil.copytree(kept, bundle)


def test_the_commands_of_the_page_work(shell: Session) -> None:
    """Each command has the output of the page."""
    lesson = steps(PAGE.read_text())
    assert lesson
    shell.follow(lesson)
