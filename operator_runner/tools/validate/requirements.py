"""The collections that the image of an operator has, and lines of its Dockerfile. Reads both files.

Lines that need another base image than this project's, on Debian, are found here.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from operator_runner.core.errors import ConfigError
from operator_runner.core.image_paths import dockerfiles, instructions, project_paths
from operator_runner.core.older_collections import lacking
from operator_runner.tools import yaml_io
from operator_runner.tools.validate.findings import Finding
from operator_runner.tools.validate.values import listed, mapping

_BASE = re.compile(r"ansible[\w.-]*operator|operator-runner")
"""Base images of operators; stages of a build on other images keep their package manager."""
_MANAGER = re.compile(r"(?:^|[\s;&|(/])(dnf|microdnf|yum|rpm)(?=\s)")
_INSTRUCTION = re.compile(
    r"\s*(ADD|ARG|CMD|COPY|ENTRYPOINT|ENV|EXPOSE|FROM|HEALTHCHECK|LABEL|ONBUILD|RUN|SHELL|USER"
    r"|VOLUME|WORKDIR)\s+(.*)",
    re.IGNORECASE,
)
_FROM = re.compile(r"(?:--\S+\s+)*(\S+)(?:\s+as\s+(\S+))?", re.IGNORECASE)
_VARIABLE = re.compile(r"\$\{?(\w+)(?::-[^}]*)?\}?")


def foreign_packages(folder: Path) -> Iterator[Finding]:
    """Yield a warning for each line that calls a package manager of Red Hat in the base image."""
    for file, _ in dockerfiles(folder):
        yield from _in_dockerfile(file)


def _in_dockerfile(file: Path) -> Iterator[Finding]:
    arguments: dict[str, str] = {}
    stages: dict[str, str] = {}
    image, keyword = "", ""
    is_continued = False
    for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines()):
        if line.lstrip().startswith("#"):
            continue
        found = None if is_continued else _INSTRUCTION.match(line)
        if found is not None:
            keyword, rest = found[1].upper(), found[2]
            if keyword == "ARG":
                name, _, value = rest.strip().partition("=")
                arguments[name] = value.strip("\"'")
            elif keyword == "FROM" and (base := _FROM.match(rest)) is not None:
                named = _VARIABLE.sub(lambda each: arguments.get(each[1], each[0]), base[1])
                image = stages.get(named.lower(), named)
                stages[(base[2] or "").lower()] = image
        is_continued = line.rstrip().endswith("\\")
        if keyword == "RUN" and _BASE.search(image) and (manager := _MANAGER.search(line)):
            yield Finding(
                file,
                number + 1,
                f"{manager[1]} is not in the base image, which is Debian: install the package with "
                "`apt-get update && apt-get install --yes NAME`, where NAME is that of Debian",
                is_error=False,
            )


BASE_IMAGE = frozenset(
    {"ansible.builtin", "ansible.legacy", "kubernetes.core", "operator_sdk.util"}
)
"""Collections of the base image; see the Dockerfile of this project."""
FILE = "requirements.yml"
_FILES = (FILE, "requirements.yaml", "collections/requirements.yml")
_NAME = re.compile(r"[a-z_][a-z0-9_]*\.[a-z_][a-z0-9_]*")
_FILE_OPTIONS = {"-r", "--requirements-file"}
_OPTIONS = _FILE_OPTIONS | {
    *("-p", "--collections-path", "-s", "--server", "--timeout"),
    *("--api-key", "--token", "--keyring", "--signature"),
}
"""Options with a value, which is not a collection."""
_INSTALL = re.compile(r"ansible-galaxy\s+collection\s+install([^&|;\n]*)")


@dataclass(frozen=True, slots=True)
class ImageCollections:
    """Names of collections; `is_open`: there may be others, from a repository or an archive."""

    names: frozenset[str]
    is_open: bool = False

    def __contains__(self, name: str) -> bool:
        """Return whether the image has the collection, as far as is known."""
        return name in self.names or self.is_open


def image_collections(project: Path, location: Callable[[str], Path | None]) -> ImageCollections:
    """Return the collections of the base image and those that the project adds.

    `location` returns the directory of a collection that is installed here: its manifest has the
    collections that it depends on. Raises ConfigError that starts with the path of a file.
    """
    names, is_open = set(BASE_IMAGE), False
    for name in _required(project):
        if _NAME.fullmatch(name):
            names |= {name, *_dependencies(name, location, set())}
        else:
            is_open = True
    return ImageCollections(frozenset(names), is_open)


def _required(project: Path) -> Iterator[str]:
    installs = [arguments.split() for arguments in _installs(project)]
    named = [
        path
        for words in installs
        for option, name in itertools.pairwise(words)
        if option in _FILE_OPTIONS
        for path in project_paths(name, project)
    ]
    for file in dict.fromkeys([*(project / name for name in _FILES), *named]):
        if not file.is_file():
            continue
        content = yaml_io.load(yaml_io.read_text(file), str(file))
        for entry in listed(mapping(content).get("collections")):
            name = entry.get("name") or entry.get("source") if isinstance(entry, dict) else entry
            yield str(name).partition(":")[0] if _NAME.match(str(name)) else str(name)
    for words in installs:
        yield from _installed(words)


def _installs(project: Path) -> Iterator[str]:
    """Yield the arguments of each `ansible-galaxy collection install` in the Dockerfile."""
    for dockerfile, _ in dockerfiles(project):
        yield from _INSTALL.findall(instructions(dockerfile))


def _installed(words: list[str]) -> Iterator[str]:
    """Yield names and archives among the arguments of `ansible-galaxy collection install`."""
    for option, quoted in itertools.pairwise(["", *words]):
        word = quoted.strip("'\"")
        name = word.partition(":")[0]
        if option in _OPTIONS or word.startswith("-"):
            continue
        yield name if _NAME.fullmatch(name) else word


def _dependencies(name: str, location: Callable[[str], Path | None], seen: set[str]) -> set[str]:
    folder = location(name)
    if folder is None or name in seen or not (folder / "MANIFEST.json").is_file():
        return seen
    seen.add(name)
    try:
        manifest = json.loads((folder / "MANIFEST.json").read_bytes())
    except ValueError as error:
        raise ConfigError(f"{folder / 'MANIFEST.json'}: invalid JSON: {error}") from error
    for each in mapping(mapping(mapping(manifest).get("collection_info")).get("dependencies")):
        _dependencies(each, location, seen)
        seen.add(each)
    return seen


def outdated(project: Path) -> Iterator[Finding]:
    """Yield a warning for each version in requirements.yml that cannot work in the base image."""
    for file in (project / name for name in _FILES if (project / name).is_file()):
        text = yaml_io.read_text(file)
        content = yaml_io.load(text, str(file))
        lines = [line.partition("#")[0] for line in text.splitlines()]
        entries = map(mapping, listed(mapping(content).get("collections")))
        pinned = {str(each.get("name")): str(each.get("version")) for each in entries}
        util = pinned.get("operator_sdk.util", "").lstrip("= ")
        for name, version in pinned.items():
            if why := lacking(name, version.lstrip("= "), lambda _: False, util):
                message = f"{name} {version} cannot work in the base image: {why}; runs use the"
                hint = "require a newer version, or install the package"
                message += f" version of the image instead: {hint}"
                line = next((n for n, text in enumerate(lines, 1) if name in text), 1)
                yield Finding(file, line, message, is_error=False)
