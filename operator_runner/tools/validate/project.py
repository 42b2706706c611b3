"""Files of roles and playbooks: where they are, and which belong together."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from operator_runner.core.image_paths import project_paths, project_roles

_YAML = {".yml", ".yaml", ".json"}
TASKS = ("tasks", "handlers")
VARIABLES = ("defaults", "vars")


@dataclass(frozen=True, slots=True)
class Layout:
    """Directories of a project."""

    folder: Path
    """The directory of watches.yaml."""
    roles_path: tuple[Path, ...] = ()
    roles: list[Path] = field(default_factory=list)
    """Roles that are reached so far; runs find files of each other's roles."""
    playbooks: list[Path] = field(default_factory=list)

    def role(self, name: str, beside: Path) -> Path | None:
        """Return the directory of a role that is named in a file, or None."""
        folders = [
            *(role.parent for role in self.roles),
            *(each.parent / "roles" for each in self.playbooks),
            *(beside.parent / "roles", self.folder / "roles", *self.roles_path),
            *(beside.parent, self.folder),
        ]
        candidates = (*(each / name for each in folders), *project_roles(name, self.folder))
        return next((each for each in candidates if each.is_dir()), None)

    def file(self, kind: str, name: str, beside: Path) -> Path | None:
        """Return a file that a task names, or None."""
        subfolder = {"template": "templates", "file": "files"}.get(kind, kind)
        places = [beside.parent, *self.roles, *(each.parent for each in self.playbooks)]
        # Normalized first, as Ansible does: `tasks/../a.yml` needs no directory `tasks`.
        candidates = [
            Path(os.path.normpath(place / part / name))
            for place in places
            for part in (subfolder, ".")
        ]
        candidates += project_paths(name, self.folder)
        return next((each for each in candidates if each.exists()), None)


def yaml_files(folder: Path) -> list[Path]:
    """Return the YAML files below a directory."""
    found = (each for each in folder.rglob("*") if each.is_file())
    return sorted(each for each in found if each.suffix in _YAML or each.name == "main")


def files(folder: Path) -> list[Path]:
    """Return all files below a directory."""
    return sorted(each for each in folder.rglob("*") if each.is_file())


def group_variables(folders: Iterable[Path]) -> Iterator[Path]:
    """Yield files of group_vars and host_vars beside playbooks and inventories."""
    for folder in dict.fromkeys(folders):
        for name in ("group_vars", "host_vars"):
            yield from (each for each in files(folder / name) if not each.name.startswith("."))


def manifests(folder: Path) -> list[Path]:
    """Return the files of the project that may have CRDs."""
    places = [folder / "crds", folder / "config" / "crd", folder / "deploy" / "crds"]
    below = [each for place in places for each in files(place)]
    beside = [each for each in sorted(folder.iterdir()) if each.is_file()]
    return [each for each in (*below, *beside) if each.suffix in {".yaml", ".yml"}]
