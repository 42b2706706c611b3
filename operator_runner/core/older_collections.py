"""Versions of collections that projects pin and that cannot work here; the bundled one is used."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path

_NEEDS = {
    "kubernetes.core": ((2, 3), "distutils", "which Python 3.12 removed"),
    "operator_sdk.util": ((0, 5), "openshift", "which is not installed"),
}
"""First version that does without a Python package, by collection, and why it may be missing."""
_KUBERNETES, _UTIL = "kubernetes.core", "operator_sdk.util"
_SHARED_CODE = (2, 4)
"""First version of kubernetes.core with the code that our operator_sdk.util imports."""
_NUMBERS = re.compile(r"(\d+)\.(\d+)")
_YAML_VERSION = re.compile(r"""^version:\s*["']?([^\s"'#]+)""", re.MULTILINE)


def lacking(
    collection: str, version: str, has_package: Callable[[str], bool], util: str = ""
) -> str:
    """Return why this version of a collection cannot work; empty if it can, or is unknown.

    `util` is the version of operator_sdk.util that the project has, if it has one.
    """
    numbers = _NUMBERS.match(version)
    if collection not in _NEEDS or numbers is None:
        return ""
    first, package, reason = _NEEDS[collection]
    own = (int(numbers[1]), int(numbers[2]))
    if own < first and not has_package(package):
        return f"it needs the Python package {package}, {reason}"
    is_util_ours = not util or lacking(_UTIL, util, has_package)
    if collection == _KUBERNETES and own < _SHARED_CODE and is_util_ours:
        return f"{_UTIL} of operator-runner needs {'.'.join(map(str, _SHARED_CODE))} or later"
    return ""


def replaced_by_bundled(
    collection: str, paths: Iterable[Path], has_package: Callable[[str], bool]
) -> list[Path]:
    """Return the directories of a collection without those that cannot work, if any one can."""
    found = list(paths)
    usable = [path for path in found if not _lacks(collection, path, has_package)]
    return usable if any(path.is_dir() for path in usable) else found


def replacements(
    paths: Iterable[Path], bundled: Iterable[Path], has_package: Callable[[str], bool]
) -> list[str]:
    """Return a message for each collection of the project that a bundled one replaces.

    `paths` and `bundled` are directories with `ansible_collections`, in the order of the search.
    """
    messages = []
    for collection in _NEEDS:
        own, ours = (_installed(collection, each) for each in (paths, bundled))
        if own is None or ours is None or not (why := _lacks(collection, own, has_package)):
            continue
        messages.append(
            f"{collection} {version_of(own)} of {own} cannot work: {why}; runs use"
            f" {collection} {version_of(ours) or 'of operator-runner'} instead. Require a newer"
            " version in requirements.yml, or install the package"
        )
    return messages


def version_of(collection: Path) -> str:
    """Return the version of an installed collection or a checkout; empty if it has none."""
    try:
        manifest = json.loads((collection / "MANIFEST.json").read_bytes())
        return str(manifest["collection_info"]["version"])
    except (OSError, ValueError, LookupError, TypeError):
        pass
    try:
        found = _YAML_VERSION.search((collection / "galaxy.yml").read_text(errors="replace"))
    except OSError:
        return ""
    return found[1] if found else ""


def _lacks(collection: str, path: Path, has_package: Callable[[str], bool]) -> str:
    util = path.parents[1].joinpath(*_UTIL.split("."))
    return lacking(collection, version_of(path), has_package, version_of(util))


def _installed(collection: str, paths: Iterable[Path]) -> Path | None:
    folders = (path.joinpath("ansible_collections", *collection.split(".")) for path in paths)
    return next((folder for folder in folders if folder.is_dir()), None)
