"""The file that `--record-requests` names: which rights the requests of roles have needed so far.

It holds verbs, resources and namespaces, and names where they are the same for every resource;
nothing of what was sent or answered. `operator-runner rbac` reads it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import structlog
import yaml

from operator_runner.core.errors import ConfigError
from operator_runner.proxy.request_permissions import ANY, OWN, Asked

_HEADER = (
    "# What the requests of roles needed, by --record-requests; `operator-runner rbac` reads it.\n"
)
_MOST = 1000
"""Entries; a role that needs more asks for what its resources name, and wants a wildcard."""
_NAMES, _NAMESPACES = 3, 10
"""So many different ones are told; more mean any."""
_TEXTS = tuple(field.name for field in fields(Asked) if field.name not in {"verb", "name"})
_LISTS = ("names", "verbs")

_log = structlog.get_logger(__name__)


class Recording:
    """The rights so far; each new one is written at once, and what is there is added to."""

    def __init__(self, file: Path) -> None:
        """Read the file if it is there. Raises ConfigError where it cannot be read or written."""
        self._file = file
        self._known = set(read(file)) if file.exists() else set()
        self._complaint = ""
        try:
            self._write()
        except OSError as error:
            raise ConfigError(
                f"--record-requests: {file} cannot be written: {error.strerror};"
                " name a file in a directory of the operator's own, such as /tmp"
            ) from error

    def add(self, asked: Iterable[Asked]) -> None:
        """Take rights in. Never raises: what cannot be written is logged, once."""
        known = self._known
        for right in asked:
            known = with_right(known, right)
        if known == self._known:
            return
        if len(known) > _MOST:
            self._complain(f"it has {_MOST} entries; more are not recorded")
            return
        self._known = known
        try:
            self._write()
        except OSError as error:
            self._complain(str(error))

    def _write(self) -> None:
        # Whole or not at all: the file is read while the operator runs.
        beside = self._file.with_name(f".{self._file.name}.new")
        beside.write_text(written(self._known))
        beside.replace(self._file)

    def _complain(self, reason: str) -> None:
        if reason != self._complaint:
            _log.warning("Requests are not recorded", file=str(self._file), reason=reason)
        self._complaint = reason


def with_right(known: set[Asked], right: Asked) -> set[Asked]:
    """Return `known` and `right`; too many names or namespaces become any. Pure."""
    if right in known or any(_covers(one, right) for one in known):
        return known
    same = {one for one in known if _where_no_matter(one) == _where_no_matter(right)}
    names = {one.name for one in same if one.namespace == right.namespace}
    if len(names | {right.name}) > _NAMES:
        right = replace(right, name="")
    if right.namespace not in {"", OWN}:
        namespaces = {one.namespace for one in same} - {"", OWN}
        if len(namespaces | {right.namespace}) > _NAMESPACES:
            right = replace(right, name="", namespace=ANY)
    return {one for one in known if not _covers(right, one)} | {right}


def _covers(wide: Asked, right: Asked) -> bool:
    everywhere = wide.namespace == ANY and right.namespace != ""
    return (
        wide.name in {"", right.name}
        and (everywhere or wide.namespace == right.namespace)
        and _where_no_matter(wide) == _where_no_matter(right)
    )


def _where_no_matter(right: Asked) -> Asked:
    return replace(right, name="", namespace="")


def written(known: Iterable[Asked]) -> str:
    """Return the text of a file: a line for what differs only in verbs and names. Pure."""
    verbs: defaultdict[Asked, set[str]] = defaultdict(set)
    for right in known:
        verbs[replace(right, verb="")].add(right.verb)
    names: defaultdict[tuple[Asked, bool, tuple[str, ...]], list[str]] = defaultdict(list)
    for right, used in sorted(verbs.items()):
        key = replace(right, name=""), bool(right.name), tuple(sorted(used))
        names[key].append(right.name)
    lines = []
    for (right, named, used_), called in sorted(names.items()):
        entry: dict[str, Any] = {key: getattr(right, key) for key in _TEXTS if getattr(right, key)}
        entry |= ({"names": called} if named else {}) | {"verbs": [*used_]}
        line = yaml.safe_dump(entry, default_flow_style=True, sort_keys=False, width=10_000)
        lines.append(f"- {line}")
    return _HEADER + "".join(lines or ["[]\n"])


def read(file: Path) -> list[Asked]:
    """Return what a file holds; raises ConfigError that names file, entry and cure."""
    try:
        content: Any = yaml.safe_load(file.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{file}: cannot be read: {error}") from error
    if not isinstance(content, list):
        raise ConfigError(f"{file}: is no recording: a list was expected; remove the file")
    rights = []
    for number, entry in enumerate(content):
        if (problem := _problem(entry)) is not None:
            raise ConfigError(f"{file}: [{number}]: {problem}; remove the entry")
        told = {key: entry.get(key, "") for key in _TEXTS}
        rights += [
            Asked(**told, verb=verb, name=name)
            for verb in entry["verbs"]
            for name in entry.get("names") or ("",)
        ]
    return rights


def _problem(entry: Any) -> str | None:
    """Return what is wrong with an entry, None if nothing is."""
    if not isinstance(entry, dict):
        return "a mapping was expected"
    for key, value in entry.items():
        if key in _TEXTS:
            if not isinstance(value, str):
                return f"{key} is no text"
        elif key not in _LISTS:
            return f"{key} means nothing here"
        elif not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            return f"{key} is no list of texts"
    if not entry.get("verbs"):
        return "it has no verbs"
    return None if entry.get("resource") or entry.get("path") else "it has no resource and no path"
