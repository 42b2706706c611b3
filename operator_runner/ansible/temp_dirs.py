"""Manage the directory of each run: TMPDIR, home directory, and the discovery that runs share.

Its name is a secret of the run and of the operator, because a process of the same user could
otherwise change its mode, or use its sockets. Python clients of the API cache their discovery in
TMPDIR, and discovery takes longer than most plays: runs get copies of files that a process wrote
in which nothing of a run was loaded (`forkserver/supervisor.py`).
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from operator_runner.ansible.nofollow_io import MAX_READ_BYTES, Directory, open_directory
from operator_runner.core import json_bounds
from operator_runner.core.model import Json

_RUN, _SERVER, _DISCOVERY = ".run-", ".server-", ".discovery-"
_HOME = "home"
_CACHES = "k8srcp-*.json"
"""Cache files of kubernetes.core."""
_OWN_IN_HOME = {".ansible": frozenset({"tmp", "cp", "pc"})}
"""Directories of a home directory that each run has for itself, and entries that it makes there."""
_VERSION = re.compile(r"[a-z0-9.-]{1,253}/[a-z0-9]{1,63}|v[0-9a-z]{1,62}")
_MAX_VERSIONS = 256
"""API versions that runs may name, served or not; runs discover further ones themselves."""


def server_dir(base: Path) -> Path:
    """Return an unused path below the work dir for a fork server of this process."""
    return base / f"{_SERVER}{os.getpid()}-{secrets.token_hex(8)}"


@dataclass(slots=True)
class _RunFiles:
    """The directory of a run."""

    path: Path
    caches: dict[str, int]
    """Sizes of the caches in it, by name."""


class TempDirs:
    """The directories of runs, below the work dir `base`."""

    def __init__(self, base: Path, home: Path | None = None) -> None:
        """Touch nothing yet. Runs have a home directory of their own that links into `home`.

        Without `home`, theirs is that of the operator.
        """
        self.base = base
        self._home = home
        self._runs: dict[tuple[Path, str], _RunFiles] = {}
        """By the private data dir of the resource, and the ID of the run."""
        self._discovery: Path | None = None
        """The directory with the caches that runs share."""
        self._discovering: Path | None = None
        self._wanted: set[str] = set()
        """API versions that runs have discovered, such as apps/v1."""
        self._unserved: set[str] = set()
        """Those among them that the API server does not serve: a run can name anything."""
        self._shared: frozenset[str] = frozenset()
        """Those that were asked for when the shared caches were made."""

    def path(self, owner: Path, run_id: str) -> Path:
        """Return the directory of a run, its TMPDIR. Raises KeyError if it has none.

        `owner` is the private data dir of the resource. The path is short because those of Unix
        sockets are limited to 107 bytes; see `socket_paths`.
        """
        return self._runs[owner, run_id].path

    def home(self, owner: Path, run_id: str) -> Path | None:
        """Return the home directory of a run, None if it is that of the operator."""
        return None if self._home is None else self.path(owner, run_id) / _HOME

    def clear(self) -> None:
        """Remove the directories of a previous process. Raises OSError."""
        ours = f"{_SERVER}{os.getpid()}-"
        with open_directory(self.base) as base:
            for name in base.directories():
                if name.startswith((_RUN, _DISCOVERY, _SERVER)) and not name.startswith(ours):
                    base.remove(name)

    def create(self, owner: Path, run_id: str) -> None:
        """Create the directory of a run, with the cached discovery. Raises OSError."""
        self.remove(owner, run_id)
        path = self.base / f"{_RUN}{secrets.token_hex(8)}"
        path.mkdir(mode=0o700)
        files = self._runs[owner, run_id] = _RunFiles(path, {})
        if self._home is not None:
            _make_home(path / _HOME, self._home)
        for cache in self._shared_caches():
            with contextlib.suppress(FileNotFoundError):  # forgotten just now
                # Copies, because clients write to these files.
                shutil.copyfile(cache, path / cache.name)
                files.caches[cache.name] = (path / cache.name).stat().st_size

    def remove(self, owner: Path, run_id: str) -> None:
        """Remove the directory of a run, if it has one. Raises OSError.

        The name of a run may come from a directory that runs can write to.
        """
        files = self._runs.pop((owner, run_id), None)
        if files is None:
            return
        with open_directory(self.base) as base:
            with contextlib.suppress(FileNotFoundError), base.below(files.path.name) as own:
                self._want(_new_versions(own, files.caches))
            base.remove(files.path.name)

    def _want(self, versions: Iterable[str]) -> None:
        for version in versions:
            known = len(self._wanted) + len(self._unserved)
            if known < _MAX_VERSIONS and version not in self._unserved:
                self._wanted.add(version)

    def remove_all(self, owner: Path) -> None:
        """Remove the directories of all runs of a resource. Raises OSError."""
        for of, run_id in [*self._runs]:
            if of == owner:
                self.remove(owner, run_id)

    def begin_discovery(self, kubeconfig: str) -> Json | None:
        """Return what `forkserver/supervisor.py` is to do before a run; None: nothing.

        `kubeconfig` is the text of that of the run, whose own files it could have replaced.

        `end_discovery` has to be called when that has ended. Raises OSError.
        """
        wanted = frozenset(self._wanted)
        if self._discovering is not None or not wanted or wanted == self._shared:
            return None
        directory = self.base / f"{_DISCOVERY}{secrets.token_hex(8)}"
        directory.mkdir(mode=0o700)
        self._shared, self._discovering = wanted, directory
        versions = sorted(wanted)
        return {"directory": str(directory), "versions": versions, "kubeconfig": kubeconfig}

    def end_discovery(self, task: Json, *, done: bool) -> None:
        """Share what has been discovered with later runs, if it was done. Raises OSError."""
        directory = Path(task["directory"])
        if self._discovering != directory:  # outdated meanwhile
            self._remove(directory)
            return
        self._discovering = None
        if done:
            with open_directory(self.base) as base, base.below(directory.name) as own:
                served = set(_new_versions(own, {}))
            self._unserved |= self._wanted & self._shared - served
            self._wanted -= self._unserved
            self._shared &= served
            self._discovery, directory = directory, self._discovery or directory
        if directory != self._discovery:
            self._remove(directory)

    def forget_discovery(self) -> None:
        """Make the next runs discover again: the API server has changed what it serves."""
        old, self._discovery, self._discovering = self._discovery, None, None
        self._shared = frozenset()
        self._unserved.clear()
        if old is not None:
            self._remove(old)

    def _shared_caches(self) -> Iterable[Path]:
        return () if self._discovery is None else self._discovery.glob(_CACHES)

    def _remove(self, directory: Path) -> None:
        with open_directory(self.base) as base:
            base.remove(directory.name)


def _make_home(home: Path, real: Path) -> None:
    """Make a home directory whose entries are links to those of the real one."""
    home.mkdir(mode=0o700)
    for name, omitted in {"": frozenset(_OWN_IN_HOME), **_OWN_IN_HOME}.items():
        with (
            contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError),
            os.scandir(real / name) as entries,
        ):
            if name:
                (home / name).mkdir(mode=0o700)
            for entry in entries:
                if entry.name not in omitted:
                    (home / name / entry.name).symlink_to(entry.path)


def _new_versions(own: Directory, copied: dict[str, int]) -> Iterator[str]:
    """Yield the API versions in the caches of a run that it has not got from others."""
    for name in own.files():
        if not fnmatch(name, _CACHES):
            continue
        try:
            size = (own.path / name).lstat().st_size
            if size == copied.get(name) or size > MAX_READ_BYTES:
                continue
            found = [
                f"{group}/{version}" if group else version
                for groups in json_bounds.decode(own.read(name).encode())["resources"].values()
                for group, versions in groups.items()
                for version, resources in versions.items()
                if resources["resources"]
            ]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue  # a run may have written anything
        yield from [each for each in found if _VERSION.fullmatch(each)][:_MAX_VERSIONS]
