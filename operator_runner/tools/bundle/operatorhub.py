"""Write an operator's folder in the community repositories behind OperatorHub."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from operator_runner.core.errors import ConfigError
from operator_runner.tools.bundle.bundle import dockerfile
from operator_runner.tools.bundle.stored_bundles import StoredBundle
from operator_runner.tools.bundle.writer import write
from operator_runner.tools.yaml_io import dump


def ci_config(reviewers: Sequence[str]) -> str:
    """Return the text of `ci.yaml`: mode of the upgrade graph, and reviewers."""
    config: dict[str, object] = {"updateGraph": "replaces-mode"}
    if reviewers:
        config["reviewers"] = list(reviewers)
    return dump(config)


def write_operatorhub(
    bundles: Sequence[StoredBundle], target: Path, reviewers: Sequence[str]
) -> Path:
    """Write `operators/PACKAGE` below `target`, with a folder for each version; return it.

    Existing versions are replaced. Raises ConfigError with the path that cannot be written.
    """
    home = target / "operators" / bundles[0].package
    write(home / "ci.yaml", ci_config(reviewers))
    for item in bundles:
        folder = home / item.version
        try:
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(item.folder, folder)
        except OSError as error:
            raise ConfigError(f"{folder}: cannot be written: {error}") from error
        write(folder / "Dockerfile", dockerfile(item.labels, ""))
    return home
