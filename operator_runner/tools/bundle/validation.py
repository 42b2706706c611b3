"""What the programs of the Operator Framework say about a bundle: OLM's validators, scorecard."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from operator_runner.core.errors import ConfigError
from operator_runner.tools.bundle.bundle import SCORECARD
from operator_runner.tools.yaml_io import parse

ERROR, WARNING = "Error", "Warning"
_SCORECARD = "scorecard-test"
# Where the program looks for the bundle; its image mounts it there.
_MOUNTED = "bundle"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about a bundle; an error is what keeps it out of a catalog."""

    test: str
    """The validator, or the test of scorecard."""
    level: str
    message: str

    def __str__(self) -> str:
        """In one line, for people."""
        return f"{self.level}: {self.test}: {self.message.removeprefix(f'{self.level}: ')}"


def validate(bundle: Path, programs: Path) -> Iterator[Finding]:
    """Yield what OLM's validators find, the optional ones included; `programs` has them built.

    Raises ConfigError if the folder is no bundle at all.
    """
    for found in json.loads(_run([str(programs / "bundle-validate"), str(bundle)], bundle)):
        yield Finding(found["validator"], found["level"], found["message"])


def scorecard(bundle: Path, programs: Path) -> Iterator[Finding]:
    """Yield what the tests of scorecard find that the bundle's own configuration lists.

    They look at the bundle alone, and need no cluster. A suggestion is a warning here.
    """
    file = bundle / SCORECARD / "config.yaml"
    if not file.is_file():
        raise ConfigError(f"{file}: it is missing, so no test is asked for")
    (config,) = parse(file.read_text(encoding="utf-8"), str(file))
    with tempfile.TemporaryDirectory(prefix="scorecard-") as root:
        shutil.copy(programs / _SCORECARD, root)
        shutil.copytree(bundle, Path(root) / _MOUNTED)
        for name in _tests(config["stages"], file):
            answer = json.loads(_run([*_rooted(root), f"/{_SCORECARD}", name], bundle))
            for result in answer["results"]:
                yield from _findings(name, result)


def _tests(stages: list[dict[str, list[dict[str, list[str]]]]], file: Path) -> Iterator[str]:
    for stage in stages:
        for test in stage.get("tests") or ():
            match test.get("entrypoint"):
                case [program, str(name)] if program == _SCORECARD:
                    yield name
                case other:
                    raise ConfigError(f"{file}: entrypoint: {other} cannot be run without an image")


def _findings(name: str, result: dict[str, object]) -> Iterator[Finding]:
    for key, level in (("errors", ERROR), ("suggestions", WARNING)):
        messages = result.get(key) or []
        assert isinstance(messages, list)
        for message in messages:
            yield Finding(name, level, message)
    if result["state"] != "pass" and not result.get("errors"):
        yield Finding(name, ERROR, f"the state is {result['state']}")


def _rooted(root: str) -> list[str]:
    """Return the command that takes a folder for the root, as nobody's user too."""
    alone = [] if os.geteuid() == 0 else ["unshare", "--map-root-user"]
    return [*alone, "chroot", root]


def _run(command: list[str], bundle: Path) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ConfigError(f"{command[0]}: it cannot be run: {error.strerror}") from error
    if done.returncode:
        raise ConfigError(f"{bundle}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
