"""Write the files of a bundle, replacing those of an earlier one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from operator_runner.core.errors import ConfigError
from operator_runner.tools.bundle.bundle import MANIFESTS, SCORECARD


def write_bundle(folder: Path, files: Mapping[str, str]) -> None:
    """Write a bundle, and remove stale files of an earlier one.

    Other files are kept, such as metadata/dependencies.yaml. Raises ConfigError if the folder has
    manifests that are not a bundle.
    """
    present = sorted((folder / MANIFESTS).glob("*.yaml"))
    if present and not any(file.name.endswith(".clusterserviceversion.yaml") for file in present):
        raise ConfigError(
            f"--output: {folder / MANIFESTS} contains manifests without a ClusterServiceVersion;"
            " choose another folder"
        )
    stale = [*present, *(folder / SCORECARD).glob("*.yaml")]
    for path, text in files.items():
        write(folder / path, text)
    for old in stale:
        if str(old.relative_to(folder)) not in files:
            old.unlink()


def write(path: Path, text: str) -> None:
    """Write one file and create its parent folders. Raises ConfigError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from error
