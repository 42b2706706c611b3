"""Where the files that a path of the operator's image names are in its project."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from string import Template

_HOME = Path("/opt/ansible")
"""HOME and working directory of the base image."""
_DOCKERFILES = ("Dockerfile", "build/Dockerfile")
_COPY = re.compile(r"^\s*(?:COPY|ADD)\s+(.+)$", re.IGNORECASE | re.MULTILINE)


def project_paths(name: str, folder: Path) -> Iterator[Path]:
    """Yield the paths in a project, of which some may not exist, for a path in its image.

    Those that the Dockerfile in `folder` or its `build` copies there come first; then everything
    in the home directory of the image counts as copied from `folder`, the directory of
    watches.yaml.
    """
    path = _HOME / name
    for sources, target in _copies(folder):
        for source in sources:
            is_single_file = len(sources) == 1 and source.is_file() and not target.endswith("/")
            place = _HOME / target / ("" if is_single_file or source.is_dir() else source.name)
            if path.is_relative_to(place):
                yield source / path.relative_to(place)
    if path.is_relative_to(_HOME):
        yield folder / path.relative_to(_HOME)


def dockerfiles(folder: Path) -> Iterator[str]:
    """Yield the texts of a project's Dockerfiles: one line an instruction, ${HOME} replaced."""
    for file in (folder / name for name in _DOCKERFILES):
        if file.is_file():
            text = file.read_text(encoding="utf-8", errors="replace").replace("\\\n", " ")
            yield Template(text).safe_substitute(HOME=_HOME)


def _copies(folder: Path) -> Iterator[tuple[list[Path], str]]:
    """Yield the sources and the target of each instruction that copies from the project."""
    for text in dockerfiles(folder):
        for arguments in _COPY.findall(text):
            words = _words(arguments)
            if not any(word.startswith("--from") for word in words):
                *names, target = (word for word in words if not word.startswith("--"))
                yield [found for name in names for found in _matches(folder, name)], target


def _words(arguments: str) -> list[str]:
    if arguments.startswith("["):
        try:
            return list(map(str, json.loads(arguments)))
        except ValueError:
            return [""]  # invalid for a build, too
    return arguments.split()


def _matches(folder: Path, name: str) -> list[Path]:
    relative = name.lstrip("/")
    return sorted(folder.glob(relative)) if "*" in relative else [folder / relative]
