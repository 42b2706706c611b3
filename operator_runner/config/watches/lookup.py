"""Find roles and playbooks in the file system."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from operator_runner.core.image_paths import project_paths

_SYSTEM_COLLECTIONS = "/usr/share/ansible/collections"
_FQCN_PARTS = 3
_MAIN_FILES = ("main.yml", "main.yaml", "main.json", "main")


@dataclass(frozen=True, slots=True)
class Lookup:
    """The directories that are searched, in the order of ansible-operator."""

    cwd: Path
    roles: tuple[Path, ...]
    """From --ansible-roles-path or ANSIBLE_ROLES_PATH."""
    collections: tuple[Path, ...]
    """From --ansible-collections-path or ANSIBLE_COLLECTIONS_PATH, or the usual places."""
    project: Path | None = None
    """The directory of watches.yaml, for paths that only the image has."""

    @classmethod
    def of(
        cls,
        environ: Mapping[str, str],
        roles_path: str,
        collections_path: str,
        project: Path | None = None,
    ) -> Lookup:
        """Take the paths of the flags, else of the environment, else the defaults."""
        home = environ.get("HOME", "")
        collections = collections_path or environ.get("ANSIBLE_COLLECTIONS_PATH", "")
        if not collections:
            collections = _SYSTEM_COLLECTIONS
            if home:
                collections += f":{home}/.ansible/collections"
        roles = roles_path or environ.get("ANSIBLE_ROLES_PATH", "")
        cwd = Path.cwd()
        return cls(cwd, _split(roles, cwd, home), _split(collections, cwd, home), project)

    def playbook(self, name: str) -> Path:
        """Return the absolute path of a playbook, whether it exists or not."""
        candidates = (self.cwd / name, *self._in_project(name))
        return next((path for path in candidates if path.exists()), self.cwd / name)

    def role(self, name: str) -> Path:
        """Return the directory of a role, as a path that may go over symbolic links.

        The first that exists; if none does, the name as a path below the working directory.
        """
        return next((path for path in self.candidates(name) if path.exists()), self.cwd / name)

    def candidates(self, name: str) -> Iterator[Path]:
        """Yield where a role may be, best first."""
        if Path(name).is_absolute():
            yield Path(name)
            yield from self._in_project(name)
            return
        parts = name.split(".")
        if len(parts) == _FQCN_PARTS:
            namespace, collection, role = parts
            for base in self.collections:
                yield base / "ansible_collections" / namespace / collection / "roles" / role
        for base in self.roles:
            yield base / name
            yield base / "roles" / name
        yield self.cwd / "roles" / name
        yield self.cwd / name
        yield from self._in_project(f"roles/{name}")

    def _in_project(self, name: str) -> Iterator[Path]:
        if self.project is not None:
            yield from (path.absolute() for path in project_paths(name, self.project))


def has_tasks(role: Path) -> bool:
    """Return whether Ansible finds tasks in the directory of a role."""
    return any((role / "tasks" / name).is_file() for name in _MAIN_FILES)


def _split(paths: str, cwd: Path, home: str) -> tuple[Path, ...]:
    """Take a colon list apart; `~` is the home directory, as Ansible has it."""
    if not paths:
        return ()
    expanded = (home + path[1:] if path.startswith("~/") else path for path in paths.split(":"))
    return tuple(cwd / path for path in expanded)
