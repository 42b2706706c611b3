"""The folder of an operator in the repositories of the community, which OperatorHub shows."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from operator_runner.core.errors import ConfigError
from operator_runner.tools.bundle.bundle import dockerfile
from operator_runner.tools.bundle.published import Published
from operator_runner.tools.bundle.writing import write
from operator_runner.tools.yaml_io import dump


def settings(reviewers: Sequence[str]) -> str:
    """Return the text of `ci.yaml`: how versions follow each other, and who must approve."""
    said: dict[str, object] = {"updateGraph": "replaces-mode"}
    if reviewers:
        said["reviewers"] = list(reviewers)
    return dump(said)


def publish(bundles: Sequence[Published], target: Path, reviewers: Sequence[str]) -> Path:
    """Write `operators/PACKAGE` below `target`, with a folder for each version; return it.

    A version that is there already is replaced. Raises ConfigError with the file that is in the
    way.
    """
    home = target / "operators" / bundles[0].package
    write(home / "ci.yaml", settings(reviewers))
    for each in bundles:
        folder = home / each.version
        try:
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(each.folder, folder)
        except OSError as error:
            raise ConfigError(f"{folder}: it cannot be written: {error}") from error
        write(folder / "Dockerfile", dockerfile(each.labels, ""))
    return home
