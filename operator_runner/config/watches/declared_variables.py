"""Find the variables that a role or a playbook declares or uses.

Defaults, argument specs and the vars of plays declare them; templates and conditions use them.
All content that runs is read: roles of a playbook, their dependencies, and roles that tasks
include by a literal name. An invalid YAML file is skipped, because Ansible reports it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from operator_runner.config.watches.lookup import Lookup
from operator_runner.core import ansible_yaml
from operator_runner.core.ansible_modules import Trait, has_trait
from operator_runner.core.model import RunContent

_SUFFIXES = (".yml", ".yaml", ".json", "")
_PLAY_TASKS = ("pre_tasks", "tasks", "post_tasks", "handlers")
_BLOCKS = ("block", "rescue", "always")
_USES = re.compile(
    r"\{[{%](?P<template>.*?)[%}]\}"
    r"|^\s*(?:-\s+)?(?:when|until|changed_when|failed_when|that|var|loop)\s*:(?P<condition>[^\n]*)$"
    r"|^\s*-\s+(?P<item>[^:#\n]+\s[^:#\n]+)$",
    re.DOTALL | re.MULTILINE,
)
"""Templates, and what Ansible takes for an expression without braces."""
_WORD = re.compile(r"[A-Za-z_]\w*")
_MAX_FILE_BYTES = 1024 * 1024


def declared_variables(content: RunContent, lookup: Lookup) -> frozenset[str]:
    """Return the names of the variables that a role or playbook declares or uses.

    Some more may be among them, such as words of a text beside an expression.
    """
    reader = _NameCollector(lookup)
    if content.role is not None:
        reader.role(content.role)
    else:
        reader.playbook(content.path)
    return frozenset(reader.names)


class _NameCollector:
    """Collects names; each file is read once."""

    def __init__(self, lookup: Lookup) -> None:
        self.names: set[str] = set()
        self._lookup = lookup
        self._seen: set[Path] = set()

    def role(self, role: Path) -> None:
        """Read a role's directory."""
        if role in self._seen or not role.is_dir():
            return
        self._seen.add(role)
        self._uses(role)
        for defaults in _documents(role / "defaults", "main"):
            self._names_of(defaults)
        for main in _documents(role / "meta", "main"):
            self._arguments(main)
            for dependency in _list(_get(main, "dependencies")):
                self._role_named(dependency, role.parent)
        for specs in _documents(role / "meta", "argument_specs"):
            self._arguments(specs)
        if (role / "tasks").is_dir():
            for path in sorted((role / "tasks").rglob("*")):
                if path.suffix in _SUFFIXES:
                    self._tasks(ansible_yaml.read(path), role.parent)

    def playbook(self, playbook: Path) -> None:
        """Read a playbook's file."""
        if playbook in self._seen:
            return
        self._seen.add(playbook)
        for path in (
            playbook,
            *(playbook.parent / name for name in ("tasks", "templates", "vars")),
        ):
            self._uses(path)
        for play in _list(ansible_yaml.read(playbook)):
            for name in _arguments_of(play, Trait.INCLUDES_PLAYBOOK):
                if isinstance(name, str):
                    self.playbook(playbook.parent / name)
            given = _get(play, "vars")
            for variables in given if isinstance(given, list) else [given]:
                self._names_of(variables)
            for role in _list(_get(play, "roles")):
                self._role_named(role, playbook.parent / "roles")
            for section in _PLAY_TASKS:
                self._tasks(_get(play, section), playbook.parent / "roles")

    def _uses(self, place: Path) -> None:
        """Add the variables that a file, or all files of a directory, use."""
        for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
            for found in _USES.finditer(_text(path)):
                self.names.update(_WORD.findall("".join(filter(None, found.groups()))))

    def _names_of(self, variables: Any) -> None:
        if isinstance(variables, dict):
            self.names.update(name for name in variables if isinstance(name, str))

    def _arguments(self, document: Any) -> None:
        specs = _get(document, "argument_specs")
        for entry_point in specs.values() if isinstance(specs, dict) else ():
            self._names_of(_get(entry_point, "options"))

    def _tasks(self, tasks: Any, beside: Path) -> None:
        for task in _list(tasks):
            for block in _BLOCKS:
                self._tasks(_get(task, block), beside)
            for role in _arguments_of(task, Trait.INCLUDES_ROLE):
                self._role_named(role, beside)

    def _role_named(self, role: Any, beside: Path) -> None:
        """Read a role that is named as text, or as `role` or `name` of a map."""
        name = role if isinstance(role, str) else _get(role, "role") or _get(role, "name")
        if not isinstance(name, str) or not name or "{{" in name:
            return
        for path in (beside / name, *self._lookup.candidates(name)):
            if path.is_dir():
                self.role(path)
                return


def _arguments_of(task: Any, trait: Trait) -> Iterator[Any]:
    """Yield the arguments of modules with a trait, as a task or play gives them."""
    for key, arguments in task.items() if isinstance(task, dict) else ():
        if has_trait(str(key), trait):
            yield arguments


def _documents(folder: Path, name: str) -> Iterator[Any]:
    """Yield what Ansible reads as `folder/name`: a file, or the files of a directory."""
    for suffix in _SUFFIXES:
        path = folder / f"{name}{suffix}"
        if path.is_dir():
            inside = sorted(path.rglob("*"))
            yield from (ansible_yaml.read(file) for file in inside if file.suffix in _SUFFIXES)
        elif path.is_file():
            yield ansible_yaml.read(path)


def _text(path: Path) -> str:
    """Return the text of a file; of one that is large or cannot be read nothing."""
    try:
        is_small = path.is_file() and path.stat().st_size <= _MAX_FILE_BYTES
        return path.read_text(errors="replace") if is_small else ""
    except OSError:
        return ""


def _get(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, dict) else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
