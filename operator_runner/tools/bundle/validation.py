"""Run OLM's validators and scorecard on a bundle."""

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
from operator_runner.tools.yaml_io import load_objects, read_text

ERROR, WARNING = "Error", "Warning"
_SCORECARD = "scorecard-test"
# Where the program expects the bundle: the mount point in its image.
_MOUNTED = "bundle"


@dataclass(frozen=True, slots=True)
class ValidationMessage:
    """A result of a validator; an error excludes the bundle from catalogs."""

    test: str
    """Name of the validator or of the scorecard test."""
    level: str
    message: str

    def __str__(self) -> str:
        """Return one line for display."""
        return f"{self.level}: {self.test}: {self.message.removeprefix(f'{self.level}: ')}"


def validate(bundle: Path, programs: Path) -> Iterator[ValidationMessage]:
    """Yield the findings of OLM's validators, optional ones included.

    `programs` is the folder of the built validators. Raises ConfigError if `bundle` is not one.
    """
    for found in json.loads(_run([str(programs / "bundle-validate"), str(bundle)], bundle)):
        yield ValidationMessage(found["validator"], found["level"], found["message"])


def scorecard(bundle: Path, programs: Path) -> Iterator[ValidationMessage]:
    """Yield the findings of the scorecard tests in the bundle's own configuration.

    These tests read only the bundle, without a cluster. Suggestions are reported as warnings, and
    so is a bundle without a configuration. Raises ConfigError.
    """
    file = bundle / SCORECARD / "config.yaml"
    if not file.is_file():
        missing = f"no tests were run, because the bundle has no {SCORECARD}config.yaml"
        hint = (
            "to run them, add `../scorecard` to config/manifests/kustomization.yaml, as `init` does"
        )
        yield ValidationMessage("scorecard", WARNING, f"{missing}; {hint}")
        return
    (config,) = load_objects(read_text(file), str(file))
    with tempfile.TemporaryDirectory(prefix="scorecard-") as root:
        shutil.copy(programs / _SCORECARD, root)
        shutil.copytree(bundle, Path(root) / _MOUNTED)
        for name in _tests(config["stages"], file):
            answer = json.loads(_run([*_chroot(root), f"/{_SCORECARD}", name], bundle))
            for result in answer["results"]:
                yield from _findings(name, result)


def _tests(stages: list[dict[str, list[dict[str, list[str]]]]], file: Path) -> Iterator[str]:
    for stage in stages:
        for test in stage.get("tests") or ():
            match test.get("entrypoint"):
                case [program, str(name)] if program == _SCORECARD:
                    yield name
                case other:
                    raise ConfigError(
                        f"{file}: unsupported entrypoint {other}: expected [{_SCORECARD}, TEST]"
                    )


def _findings(name: str, result: dict[str, object]) -> Iterator[ValidationMessage]:
    for key, level in (("errors", ERROR), ("suggestions", WARNING)):
        messages = result.get(key) or []
        assert isinstance(messages, list)
        for message in messages:
            yield ValidationMessage(name, level, message)
    if result["state"] != "pass" and not result.get("errors"):
        yield ValidationMessage(name, ERROR, f"state {result['state']}")


def _chroot(root: str) -> list[str]:
    """Return a command prefix that runs a program with `root` as its root directory."""
    prefix = [] if os.geteuid() == 0 else ["unshare", "--map-root-user"]
    return [*prefix, "chroot", root]


def _run(command: list[str], bundle: Path) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ConfigError(f"{command[0]}: cannot be run: {error.strerror}") from error
    if done.returncode:
        raise ConfigError(f"{bundle}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
