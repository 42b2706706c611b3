"""Prepare the files of roles for later runs, one at a time, while the fork server is idle.

A run has one role or playbook; the roles that its files name are prepared as well. Only the names
of files and the texts in them are read here, so that nothing of a run reaches the fork server.
"""

from __future__ import annotations

import contextlib
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from operator_runner.core import ansible_yaml

_FOLDERS = ("tasks", "handlers", "defaults", "vars", "meta", "templates")
_TEMPLATES, _ROLES = "templates", "roles"
_YAML = {".yml", ".yaml", ".json", ""}
_NAME = re.compile(r"(?!/)[\w./-]{1,200}")
"""Name or relative path of a role. An absolute path may be where a run writes files."""
_MAX_FILES = 5_000
"""Files that are looked at in a role."""


class RoleFile(NamedTuple):
    """A file of a role or playbook."""

    path: Path
    text: str
    is_template: bool
    """Whether the whole text is a template."""
    documents: Sequence[Any] = ()
    """Its YAML as plain data, without Ansible's tags; a template has none."""


class RoleFiles:
    """The files of roles and playbooks that have runs, and of the roles that these name."""

    def __init__(
        self,
        preparations: Sequence[Callable[[RoleFile], None]],
        roles_path: Sequence[Path] = (),
    ) -> None:
        """Begin with no role. `preparations` are called with each file that is new or changed.

        `roles_path` is searched for roles besides the usual places.
        """
        self._preparations = preparations
        self._roles_path = roles_path
        self._contents: deque[Path] = deque()
        self._files: deque[tuple[Path, Path]] = deque()
        self._states: dict[Path, int] = {}
        self._named: dict[Path, set[Path]] = {}
        """The roles that the files of a role or playbook name."""

    def note(self, content: Path) -> None:
        """Schedule the files of a role or playbook that has a run, and of the roles it names."""
        if self._preparations:
            self._schedule(_reachable(content, self._named))

    @property
    def is_pending(self) -> bool:
        """Whether files have to be prepared."""
        return bool(self._files or self._contents)

    def step(self) -> None:
        """Do one step: find the changed files of a role, or prepare one of them."""
        # The play that reads a broken file reports it.
        with contextlib.suppress(Exception):
            if self._files:
                self._prepare(*self._files.popleft())
            else:
                content = self._contents.popleft()
                self._files.extend((content, path) for path in self._changed(content))

    def _schedule(self, contents: Iterable[Path]) -> None:
        self._contents.extend(each for each in contents if each not in self._contents)

    def _changed(self, content: Path) -> Iterator[Path]:
        for path in _files_of(content):
            state = path.stat().st_mtime_ns
            if self._states.get(path) != state:
                self._states[path] = state
                yield path

    def _prepare(self, content: Path, path: Path) -> None:
        file = _read(path, _folder_of(content))
        known = self._named.setdefault(content, set())
        new = set(self._roles_named(content, file)) - known
        known |= new
        self._schedule(sorted(new))
        for prepare in self._preparations:
            prepare(file)

    def _roles_named(self, content: Path, file: RoleFile) -> Iterator[Path]:
        """Yield the roles whose name or path is a value in the file, whatever its key is."""
        values = {text for document in file.documents for text in ansible_yaml.texts(document)}
        names = [value for value in values if _NAME.fullmatch(value)]
        for folder in (*_folders_of_roles(content), *self._roles_path):
            yield from (
                folder.joinpath(name).resolve() for name in names if _is_role(folder / name)
            )


def _reachable(content: Path, named: dict[Path, set[Path]]) -> Iterator[Path]:
    """Yield a role or playbook and the roles that it names, directly or not."""
    met = [content]
    for each in met:
        yield each
        met += sorted(named.get(each, set()).difference(met))


def _folders_of_roles(content: Path) -> tuple[Path, ...]:
    """Return where roles are looked for: beside a role, or in the usual folders of a playbook."""
    parent = content.parent
    return (parent / _ROLES, parent.parent / _ROLES, parent) if content.is_file() else (parent,)


def _is_role(path: Path) -> bool:
    return path.is_dir() and any((path / name).is_dir() for name in _FOLDERS)


def _files_of(content: Path) -> Iterator[Path]:
    """Yield the files of a role, or a playbook and the files beside it."""
    if content.is_file():
        yield content
    folder = _folder_of(content)
    found = (path for name in _FOLDERS for path in sorted((folder / name).rglob("*")))
    yield from islice(filter(Path.is_file, found), _MAX_FILES)


def _folder_of(content: Path) -> Path:
    """Return the folder of a role, without links as ansible-core names it, or of a playbook."""
    return content.parent if content.is_file() else content.resolve()


def _read(path: Path, folder: Path) -> RoleFile:
    """Read a file as ansible-core does: UTF-8, with the ends of lines that it has."""
    is_template = path.is_relative_to(folder / _TEMPLATES)
    file = RoleFile(path, path.read_bytes().decode(), is_template)
    if is_template or path.suffix not in _YAML:
        return file
    return file._replace(documents=list(ansible_yaml.load_all(file.text)))
