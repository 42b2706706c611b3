"""The files that a watch runs: their digest, and whether they have inputs beside the cluster."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from operator_runner.ansible.purity import templates
from operator_runner.ansible.purity.tasks import play_impurities, task_impurities, value_impurities
from operator_runner.config.watches.lookup import Lookup
from operator_runner.core import ansible_yaml
from operator_runner.core.ansible_modules import Trait, has_trait
from operator_runner.core.model import RunContent
from operator_runner.core.run_inputs import digest_of

_PLUGINS = frozenset(
    {
        *("library", "module_utils", "modules", "plugins", "filter_plugins", "test_plugins"),
        *("lookup_plugins", "action_plugins", "callback_plugins", "vars_plugins"),
        *("cache_plugins", "connection_plugins", "strategy_plugins"),
    }
)
_UNTEMPLATED = frozenset({"files", "meta", "molecule", "tests"})
_YAML = (".yml", ".yaml", ".json", "")
_TASKS = ("tasks", "handlers")
_VALUES = ("defaults", "vars", "group_vars", "host_vars")
_MAX_FILE_BYTES = 1024 * 1024
_MAX_FILES = 2000


@dataclass(frozen=True, slots=True)
class ContentState:
    """The files of a role or playbook at one time.

    `roots` are the directories and files that were read; `impurity` is why they may have other
    inputs than variables and objects, empty if they have none.
    """

    digest: str
    impurity: str = ""
    roots: tuple[Path, ...] = ()


class ContentReader:
    """Reads the files of what watches run, again only if one of them has changed."""

    def __init__(self, lookup: Lookup) -> None:
        """`lookup` finds roles by their names."""
        self._lookup = lookup
        self._states: dict[RunContent, tuple[str, ContentState]] = {}

    def state(self, content: RunContent) -> ContentState:
        """Return the current state of a role or playbook and of the roles that it names."""
        known, state = self._states.get(content, ("", None))
        if state is not None and _fingerprint(state.roots) == known:
            return state
        reading = _Reading(self._lookup)
        # Before the files are read, so that an edit meanwhile is noticed the next time.
        if content.role is not None:
            reading.find_role(content.role)
        else:
            reading.find_playbook(content.path)
        fingerprint = _fingerprint(tuple(reading.roots))
        state = reading.finish()
        self._states[content] = fingerprint, state
        return state


@dataclass(slots=True)
class _Reading:
    """Collects what one role or playbook consists of."""

    lookup: Lookup
    roots: list[Path] = field(default_factory=list)
    impurities: list[str] = field(default_factory=list)

    def find_role(self, role: Path) -> None:
        """Add a role and the roles that it names."""
        role = role.resolve()
        if role in self.roots:
            return
        self.roots.append(role)
        if not role.is_dir():
            self.impurities.append(f"{role} is not a directory")
            return
        for name in sorted(_PLUGINS):
            if (role / name).exists():
                self.impurities.append(f"role {role.name} has {name}")
        for path in _files(role):
            where = path.relative_to(role).parts
            if path.suffix in _YAML and where[0] in {*_TASKS, "meta"}:
                self._roles_named_in(ansible_yaml.read(path), role.parent)

    def find_playbook(self, playbook: Path) -> None:
        """Add a playbook, its directory, where Ansible finds files, and the roles that it names."""
        playbook = playbook.resolve()
        self.roots.append(playbook)
        for name in sorted(_PLUGINS):
            if (playbook.parent / name).exists():
                self.impurities.append(f"the playbook has {name} beside it")
        self.roots.append(playbook.parent)
        self._roles_named_in(ansible_yaml.read(playbook), playbook.parent / "roles")

    def finish(self) -> ContentState:
        """Read all files; return their digest and the first impurity."""
        digests: list[tuple[str, str]] = []
        for root in self.roots:
            for path in _files(root):
                try:
                    data = path.read_bytes()
                except OSError as error:
                    self.impurities.append(str(error))
                    continue
                digests.append((str(path), hashlib.sha256(data).hexdigest()))
                self.impurities += [
                    f"{path}: {impurity}" for impurity in _impurities_in(root, path, data)
                ]
        if len(digests) > _MAX_FILES:
            self.impurities.append(f"more than {_MAX_FILES} files")
        impurity = self.impurities[0] if self.impurities else ""
        return ContentState(digest_of(sorted(digests)), impurity, tuple(self.roots))

    def _roles_named_in(self, value: Any, beside: Path) -> None:
        """Add the roles of tasks, of `dependencies` and of `roles`, at any depth."""
        if isinstance(value, list):
            for each in value:
                self._roles_named_in(each, beside)
        elif isinstance(value, dict):
            for key, each in value.items():
                if has_trait(str(key), Trait.INCLUDES_ROLE):
                    self._role_named(each, beside)
                elif key in {"dependencies", "roles"} and isinstance(each, list):
                    for role in each:
                        self._role_named(role, beside)
                else:
                    self._roles_named_in(each, beside)

    def _role_named(self, role: Any, beside: Path) -> None:
        if isinstance(role, dict):
            role = role.get("role") or role.get("name")
        if not isinstance(role, str) or "{{" in role:
            self.impurities.append("a role without a literal name")
            return
        for path in (beside / role, *self.lookup.candidates(role)):
            if path.is_dir():
                self.find_role(path)
                return
        self.impurities.append(f"role {role} was not found")


def _impurities_in(root: Path, path: Path, data: bytes) -> Iterator[str]:
    """Yield the impurities of one file below a root."""
    if len(data) > _MAX_FILE_BYTES:
        yield "too large"
        return
    if path == root:
        yield from _yaml_impurities(data, play_impurities)
        return
    folder = path.relative_to(root).parts[0]
    if folder in _TASKS and path.suffix in _YAML:
        yield from _yaml_impurities(data, task_impurities)
    elif folder in _VALUES and path.suffix in _YAML:
        yield from _yaml_impurities(data, value_impurities)
    elif folder not in _UNTEMPLATED:
        # Modules find templates and tasks outside of their directories too.
        yield from templates.template_impurities(data.decode(errors="replace"))
        if folder != "templates" and path.suffix in _YAML[:2]:
            yield from _yaml_impurities(data, _included_impurities)


def _yaml_impurities(data: bytes, impurities: Callable[[Any], Iterator[str]]) -> Iterator[str]:
    try:
        document = ansible_yaml.load(data)
    except (ValueError, yaml.YAMLError):
        yield "invalid YAML"
    else:
        yield from impurities(document)


def _included_impurities(document: Any) -> Iterator[str]:
    """Yield the impurities of a file that may have tasks; other plays are not executed."""
    if isinstance(document, list) and not any("hosts" in each for each in document if each):
        yield from task_impurities(document)


def _files(root: Path) -> list[Path]:
    """Return the files below a directory, or the file itself, in order."""
    if root.is_file():
        return [root]
    return sorted(path for path in root.rglob("*") if path.is_file())


def _fingerprint(roots: tuple[Path, ...]) -> str:
    """Return a digest of names, times and sizes of all files, and of which plugins there are."""
    found: list[object] = []
    for root in roots:
        for path in [root, *(sorted(root.rglob("*")) if root.is_dir() else ())]:
            try:
                stat = path.stat()
            except OSError:
                continue
            found.append((str(path), stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino))
    return digest_of(found)
