"""Put the files of a bundle on the disk, in the place of those of an earlier one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from operator_runner.core.errors import ConfigError
from operator_runner.tools.bundle.bundle import MANIFESTS, SCORECARD


def write_bundle(folder: Path, files: Mapping[str, str]) -> None:
    """Write a bundle, and remove those files of an earlier one that this one lacks.

    What else lies there stays, such as metadata/dependencies.yaml. Raises ConfigError if the
    folder is something else than a bundle.
    """
    there = sorted((folder / MANIFESTS).glob("*.yaml"))
    if there and not any(file.name.endswith(".clusterserviceversion.yaml") for file in there):
        raise ConfigError(
            f"--output: {folder / MANIFESTS} holds manifests of something else than a bundle;"
            " name another folder"
        )
    stale = [*there, *(folder / SCORECARD).glob("*.yaml")]
    for path, text in files.items():
        write(folder / path, text)
    for old in stale:
        if str(old.relative_to(folder)) not in files:
            old.unlink()


def write(path: Path, text: str) -> None:
    """Write one file, and make the folders that it lies in."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: it cannot be written: {error.strerror}") from error
