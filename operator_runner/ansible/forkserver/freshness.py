"""Detect changes on disk of files that are loaded or would be found first."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from operator_runner.ansible.forkserver.plugins import DISPLAY


class Freshness:
    """The state of files and directories when they were read."""

    def __init__(self, paths: Iterable[Path]) -> None:
        """Record the state of the paths; a missing one may be created later."""
        self._seen = {str(path): _state(str(path)) for path in paths}
        folders = filter(os.path.isdir, self._seen)
        self._names = {path: names for path in folders if (names := _names(path)) is not None}

    def changed(self) -> str | None:
        """Return a path that has changed, or None."""
        for path, before in self._seen.items():
            now = _state(path)
            if now == before:
                continue
            if path not in self._names or _names(path) != self._names[path]:
                return path
            self._seen[path] = now
        return None


def preloaded_paths() -> Iterator[Path]:
    """Yield the paths whose change would make a new process load other code or settings.

    The source of each loaded module; the directories that were searched for modules, plugins
    and collections, because a new file earlier in a search path takes precedence; and the files
    of settings.
    """
    for module in tuple(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if path:
            yield Path(path)
    yield Path(DISPLAY)
    yield from map(Path, filter(None, sys.path))
    yield from _places_of_settings()
    yield from _places_of_plugins()
    yield from _places_of_collections()


def _places_of_settings() -> Iterator[Path]:
    if "ANSIBLE_CONFIG" in os.environ:
        yield Path(os.environ["ANSIBLE_CONFIG"])
    yield Path("~/.ansible.cfg").expanduser()
    yield Path("/etc/ansible/ansible.cfg")


def _places_of_plugins() -> Iterator[Path]:
    from ansible.plugins import loader as loaders

    for _, loader in loaders.get_all_plugin_loaders():
        folders = map(Path, loader._get_paths(subdirs=False))
        yield from (folder for folder in folders if folder.name != "__pycache__")
        loader._paths = None  # a play is to look for itself


def _places_of_collections() -> Iterator[Path]:
    from ansible import constants

    loaded = loaded_collections()
    for path in (*constants.COLLECTIONS_PATHS, *sys.path):
        top = Path(path) / "ansible_collections"
        yield top
        for namespace, name in loaded:
            yield top / namespace
            yield top / namespace / name
            yield top / namespace / name / "meta" / "runtime.yml"


def loaded_collections() -> set[tuple[str, ...]]:
    """Return namespace and name of each collection of which anything is loaded."""
    return {tuple(name.split(".")[1:3]) for name in sys.modules if _is_of_a_collection(name)}


def _is_of_a_collection(name: str) -> bool:
    return name.startswith("ansible_collections.") and name.count(".") > 1


def _state(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 (a thousand of these for each run)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _names(path: str) -> frozenset[str] | None:
    """Return what is in a directory, except for bytecode, which interpreters write there."""
    try:
        return frozenset(os.listdir(path)) - {"__pycache__"}  # noqa: PTH208
    except OSError:
        return None
