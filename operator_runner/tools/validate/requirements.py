"""The collections that the image of an operator has. Reads requirements.yml and the Dockerfile."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from operator_runner.core.errors import ConfigError
from operator_runner.core.older_collections import lacking
from operator_runner.tools import yaml_io
from operator_runner.tools.validate.findings import Finding

BASE_IMAGE = frozenset(
    {"ansible.builtin", "ansible.legacy", "kubernetes.core", "operator_sdk.util"}
)
"""Collections of the base image; see the Dockerfile of this project."""
FILE = "requirements.yml"
_FILES = (FILE, "requirements.yaml", "collections/requirements.yml")
_NAME = re.compile(r"[a-z_][a-z0-9_]*\.[a-z_][a-z0-9_]*")
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
    for file in (project / name for name in _FILES):
        if not file.is_file():
            continue
        content = yaml_io.load(yaml_io.read_text(file), str(file))
        entries = content.get("collections") if isinstance(content, dict) else None
        for entry in entries or ():
            name = entry.get("name") or entry.get("source") if isinstance(entry, dict) else entry
            yield str(name).partition(":")[0] if _NAME.match(str(name)) else str(name)
    dockerfile = project / "Dockerfile"
    if dockerfile.is_file():
        text = yaml_io.read_text(dockerfile).replace("\\\n", " ")
        for arguments in _INSTALL.findall(text):
            words = (word.strip("'\"").partition(":")[0] for word in arguments.split())
            yield from (word for word in words if _NAME.fullmatch(word) and word not in _FILES)


def _dependencies(name: str, location: Callable[[str], Path | None], seen: set[str]) -> set[str]:
    folder = location(name)
    if folder is None or name in seen or not (folder / "MANIFEST.json").is_file():
        return seen
    seen.add(name)
    try:
        manifest = json.loads((folder / "MANIFEST.json").read_bytes())
    except ValueError as error:
        raise ConfigError(f"{folder / 'MANIFEST.json'}: invalid JSON: {error}") from error
    for each in (manifest.get("collection_info") or {}).get("dependencies") or {}:
        _dependencies(each, location, seen)
        seen.add(each)
    return seen


def outdated(project: Path) -> Iterator[Finding]:
    """Yield a warning for each version in requirements.yml that cannot work in the base image."""
    for file in (project / name for name in _FILES if (project / name).is_file()):
        content = yaml_io.load(yaml_io.read_text(file), str(file))
        entries = content.get("collections") if isinstance(content, dict) else None
        for entry in entries or ():
            pinned = entry if isinstance(entry, dict) else {}
            name, version = str(pinned.get("name")), str(pinned.get("version"))
            if why := lacking(name, version.lstrip("= "), lambda _: False):
                message = f"{name} {version} cannot work in the base image: {why}; runs use the"
                hint = "require a newer version, or install the package"
                yield Finding(file, 1, f"{message} version of the image instead: {hint}", False)
