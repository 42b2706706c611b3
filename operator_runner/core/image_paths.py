"""Where the files that a path of the operator's image names are in its project."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from string import Template

PROJECT = "OPERATOR_RUNNER_PROJECT"
"""Variable of runs for the directory of watches.yaml."""
_HOME = Path("/opt/ansible")
"""HOME and working directory of the base image."""
_MODULES = "/usr/share/ansible/openshift"
"""Directory of modules in the base image, as its ansible.cfg names it."""
_DOCKERFILES = ("Dockerfile", "build/Dockerfile", "Containerfile")
_WATCHES = "watches.yaml"
_COPY = re.compile(r"^\s*(?:COPY|ADD)\s+(.+)$", re.IGNORECASE | re.MULTILINE)


def project_paths(name: str, folder: Path) -> Iterator[Path]:
    """Yield the paths in a project, of which some may not exist, for a path in its image.

    Those that a Dockerfile copies there come first, see `dockerfiles`; then everything in the home
    directory of the image counts as copied from `folder`, the directory of watches.yaml.
    """
    path = _HOME / name
    copied = itertools.starmap(_copies, dockerfiles(folder))
    for sources, target in itertools.chain.from_iterable(copied):
        for source in sources:
            is_single_file = len(sources) == 1 and source.is_file() and not target.endswith("/")
            place = _HOME / target / ("" if is_single_file or source.is_dir() else source.name)
            if path.is_relative_to(place):
                yield source / path.relative_to(place)
    if path.is_relative_to(_HOME):
        yield folder / path.relative_to(_HOME)


def project_roles(name: str, folder: Path) -> Iterator[Path]:
    """Yield the paths in a project for a role that a watch, a playbook or a task names."""
    yield from project_paths(name, folder)
    yield from project_paths(f"roles/{name}", folder)


@cache
def project_modules(folder: Path) -> Sequence[Path]:
    """Return the directories of a project whose modules a Dockerfile copies into the image.

    They are looked for once: each run asks for them.
    """
    return [path for path in project_paths(_MODULES, folder) if path.is_dir()]


def dockerfiles(folder: Path) -> Iterator[tuple[Path, Path]]:
    """Yield each Dockerfile of a project and the directory that it is built in.

    Those in `folder` and its `build`; without these, those that copy its watches.yaml, in the
    directory above or beside it.
    """
    own = [folder / name for name in _DOCKERFILES if (folder / name).is_file()]
    yield from ((file, folder) for file in own)
    if own:
        return
    inside = folder.absolute()
    above = inside.parent
    for file in (
        each for name in _DOCKERFILES for each in (above / name, *above.glob(f"*/{name}"))
    ):
        if not (file.is_file() and not (file.parent / _WATCHES).exists()):
            continue
        for context in (inside, above):
            if inside / _WATCHES in {one for names, _ in _copies(file, context) for one in names}:
                yield file, context


def instructions(file: Path) -> str:
    """Return the text of a Dockerfile: one line an instruction, ${HOME} replaced."""
    text = file.read_text(encoding="utf-8", errors="replace").replace("\\\n", " ")
    return Template(text).safe_substitute(HOME=_HOME)


def _copies(file: Path, context: Path) -> Iterator[tuple[list[Path], str]]:
    """Yield the sources and the target of each instruction that copies from the project."""
    for arguments in _COPY.findall(instructions(file)):
        words = _words(arguments)
        if not any(word.startswith("--from") for word in words):
            *names, target = (word for word in words if not word.startswith("--"))
            yield [found for name in names for found in _matches(context, name)], target


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
