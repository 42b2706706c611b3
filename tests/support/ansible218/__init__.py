"""ansible-core 2.18 itself, beside ours, each in one process that renders templates for tests."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import ansible_collections

from operator_runner.devcluster.locations import cache_folder

_PACKAGES = ("ansible-core==2.18.*", "jmespath")
_PROGRAM = Path(__file__).with_name("render.py")
_REPOSITORY = Path(__file__).parents[3]


def interpreter() -> Path:
    """Return a Python that has ansible-core 2.18, in a virtual environment made the first time."""
    release = f"python{sys.version_info.major}.{sys.version_info.minor}"
    made = cache_folder(os.environ) / "ansible-core-2.18" / release
    made.parent.mkdir(parents=True, exist_ok=True)
    python, complete = made / "bin" / "python", made / "complete"
    # Tests that run at the same time make it once.
    with made.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # The interpreter that it was made with may have been removed.
        if not (complete.exists() and python.exists()):
            shutil.rmtree(made, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", str(made)], check=True)
            subprocess.run([str(python), "-m", "pip", "install", "--quiet", *_PACKAGES], check=True)
            complete.touch()
    return python


class Renderer:
    """A process that renders templates with one version of ansible-core; see `render.py`."""

    def __init__(self, python: Path, *arguments: str) -> None:
        """Take the interpreter and the arguments of the program."""
        collections = str(Path(next(iter(ansible_collections.__path__))).parent)
        self._process = subprocess.Popen(
            [str(python), str(_PROGRAM), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=_REPOSITORY,
            env={
                **_without_settings(),
                "ANSIBLE_COLLECTIONS_PATH": collections,
                "PYTHONPATH": str(_REPOSITORY) if arguments else "",
                "PYTHONHASHSEED": "0",
                "ANSIBLE_DEPRECATION_WARNINGS": "false",
                "ANSIBLE_LOCALHOST_WARNING": "false",
            },
        )

    def __enter__(self) -> Self:
        """Wait until it can render."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line == "ready\n", f"{_PROGRAM.name} did not start: {line!r}"
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def render(self, variables: str, templates: dict[str, str]) -> dict[str, Any]:
        """Return `facts` or `error` of templates, given variables as YAML; see `render.py`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        case = {"variables": variables, "templates": templates}
        self._process.stdin.write(json.dumps(case) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer


def real() -> Renderer:
    """Return ansible-core 2.18."""
    return Renderer(interpreter())


def ours() -> Renderer:
    """Return the ansible-core that runs use, with the types that they use by default."""
    return Renderer(Path(sys.executable), "ours")


def _without_settings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
