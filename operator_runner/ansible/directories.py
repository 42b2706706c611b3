"""Use directories that runs can write to, without following links.

A run may replace a file or a directory by a link to a file that only the operator can access, or by
a pipe. Names therefore belong to an open directory, which stays the same whatever is replaced. What
is read is bounded, and modes that a run has taken away are restored: no kernel feature that needs
no privilege prevents chmod by a process of the same user.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import os
import secrets
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TextIO, TypeVar
from urllib.parse import quote

from operator_runner.core.model import ObjectRef

_Result = TypeVar("_Result")

COMMANDS = "commands"
"""Directory below the work dir, for `command_file`."""
_DIRECTORY = os.O_PATH | os.O_DIRECTORY
_OF_ANOTHER_KIND = {errno.ENOTDIR, errno.ELOOP, errno.ENXIO}
"""Errors from a link, a pipe or a file in the place of another kind."""
MAX_READ_BYTES = 8 * 1024 * 1024
"""Of a file; a sparse file of any size takes no space on the disk."""
_MAX_ENTRIES = 10_000
"""Of a directory, that are looked at together."""
_REMOVAL_SECONDS = 20.0
"""A process that a run has left may write into a directory while it is removed."""


@dataclass(frozen=True, slots=True)
class Directory:
    """An open directory; names are those of its entries. Methods raise OSError."""

    path: Path
    """For messages."""
    descriptor: int
    """For calls with `dir_fd`."""

    def __enter__(self) -> Self:
        """Return the directory, which is closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        os.close(self.descriptor)

    def below(self, name: str, *, create: bool = False) -> Directory:
        """Open a directory in it; FileNotFoundError for anything else.

        With `create` a missing one is created, 0700; a link or a file in its place is removed.
        Its owner's permissions are restored.
        """
        try:
            descriptor = self._open(name, _DIRECTORY)
        except FileNotFoundError:
            if not create:
                raise
            # Another thread may create the directory now.
            with contextlib.suppress(FileNotFoundError, IsADirectoryError):
                self._retried(lambda: os.unlink(name, dir_fd=self.descriptor))
            with contextlib.suppress(FileExistsError):
                self._retried(lambda: os.mkdir(name, 0o700, dir_fd=self.descriptor))
            descriptor = self._open(name, _DIRECTORY)
        found = Directory(self.path / name, descriptor)
        found.restore_mode()
        return found

    def directories(self) -> list[str]:
        """Return the names of the directories in it, the one that was changed last first.

        Of more than 10,000 entries, only so many are looked at.
        """
        changed: dict[str, int] = {}
        for name, is_directory in self.entries():
            with contextlib.suppress(FileNotFoundError):
                if is_directory:
                    found = os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
                    changed[name] = found.st_mtime_ns
        return sorted(changed, key=lambda name: -changed[name])

    def files(self) -> list[str]:
        """Return the names of entries that are not directories; see `entries`."""
        return [name for name, is_directory in self.entries() if not is_directory]

    def read(self, name: str) -> str:
        """Return the text of a file; FileNotFoundError for anything but a file.

        Of a file of more than 8 MiB, the middle is left out.
        """
        descriptor = self._open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            os.close(descriptor)
            raise FileNotFoundError(errno.ENOENT, "not a file", str(self.path / name))
        with os.fdopen(descriptor, "rb") as file:
            if found.st_size <= MAX_READ_BYTES:
                return file.read(MAX_READ_BYTES).decode(errors="replace")
            half = MAX_READ_BYTES // 2
            begin = file.read(half)
            file.seek(-half, os.SEEK_END)
            omitted = f"\n... ({found.st_size - 2 * half} bytes omitted) ...\n".encode()
            return (begin + omitted + file.read(half)).decode(errors="replace")

    def write(self, name: str, text: str) -> None:
        """Write a file opened with `open_new`."""
        with self.open_new(name) as file:
            file.write(text)

    def open_new(self, name: str) -> TextIO:
        """Open a new file, 0600, for writing, in place of what has this name."""
        self.remove(name)
        descriptor = self._open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        return os.fdopen(descriptor, "w", encoding="utf-8")

    def link(self, name: str, target: str) -> None:
        """Make a link to another entry, in place of what has this name."""
        self.remove(name)
        self._retried(lambda: os.symlink(target, name, dir_fd=self.descriptor))

    def move_here(self, source: Path) -> None:
        """Move a file or a directory here, in place of what has its name."""
        self.remove(source.name)
        self._retried(lambda: os.rename(source, source.name, dst_dir_fd=self.descriptor))

    def remove(self, name: str) -> None:
        """Remove a file, a link or a directory with all that is in it, if there is one.

        Neither depth, modes nor number of files matter. Raises OSError, EBUSY for a directory that
        cannot be emptied within 20 s.
        """
        try:
            self._retried(lambda: os.unlink(name, dir_fd=self.descriptor))
        except FileNotFoundError:
            pass
        except IsADirectoryError:
            with contextlib.suppress(FileNotFoundError), self.below(name) as directory:
                _empty(directory)
            with contextlib.suppress(FileNotFoundError):
                self._retried(lambda: os.rmdir(name, dir_fd=self.descriptor))

    def remove_empty(self, name: str) -> None:
        """Remove a directory if nothing is in it."""
        with contextlib.suppress(OSError):
            os.rmdir(name, dir_fd=self.descriptor)

    def entries(self) -> list[tuple[str, bool]]:
        """Return names of entries, and whether each is a directory; of 10,000 entries at most."""
        flags = os.O_RDONLY | os.O_DIRECTORY
        with (
            Directory(self.path, self._open(".", flags)) as readable,
            os.scandir(readable.descriptor) as entries,
        ):
            some = itertools.islice(entries, _MAX_ENTRIES)
            return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in some]

    def _open(self, name: str, flags: int) -> int:
        try:
            return self._retried(
                lambda: os.open(name, flags | os.O_NOFOLLOW, 0o600, dir_fd=self.descriptor)
            )
        except OSError as error:
            number = errno.ENOENT if error.errno in _OF_ANOTHER_KIND else error.errno
            raise OSError(number, error.strerror, str(self.path / name)) from error

    def _retried(self, call: Callable[[], _Result]) -> _Result:
        """Call; once more if the permissions of this directory were missing and are restored."""
        try:
            return call()
        except PermissionError:
            if not self.restore_mode():
                raise
            return call()

    def restore_mode(self) -> bool:
        """Give the owner all permissions of this directory; return whether some were missing."""
        found = os.fstat(self.descriptor)
        if found.st_uid != os.geteuid() or found.st_mode & stat.S_IRWXU == stat.S_IRWXU:
            return False
        # fchmod refuses O_PATH.
        Path(f"/proc/self/fd/{self.descriptor}").chmod(stat.S_IMODE(found.st_mode) | stat.S_IRWXU)
        return True


def _empty(top: Directory) -> None:
    """Remove all that is in a directory.

    What is deeper is moved up before: any depth needs neither recursion nor more than three
    descriptors.
    """
    deadline = time.monotonic() + _REMOVAL_SECONDS
    while entries := top.entries():
        for name, is_directory in entries:
            if time.monotonic() > deadline:
                raise OSError(errno.EBUSY, "still written to", str(top.path))
            if is_directory:
                _lift(top, name)
            else:
                _unlink(top, name)


def _lift(top: Directory, name: str) -> None:
    """Move the directories in one of the entries of `top` to `top`; remove the entry."""
    with contextlib.suppress(FileNotFoundError), top.below(name) as directory:
        for entry, is_directory in directory.entries():
            if not is_directory:
                _unlink(directory, entry)
                continue
            directory.below(entry).__exit__()  # with its permissions restored it can be moved
            os.rename(
                entry,
                secrets.token_hex(8),
                src_dir_fd=directory.descriptor,
                dst_dir_fd=top.descriptor,
            )
    top.remove_empty(name)  # or the next turn removes what has come meanwhile


def _unlink(directory: Directory, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory.descriptor)


def restore_mode(path: Path, mode: int) -> None:
    """Give a file or directory of this user the mode that it had. Raises OSError."""
    found = path.stat()
    if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) != mode:
        path.chmod(mode)


def open_directory(path: Path, *, create: bool = False) -> Directory:
    """Open the directory with an absolute path that has no links; see `Directory.below`."""
    directory = Directory(Path(path.anchor), os.open(path.anchor, _DIRECTORY))
    for name in path.parts[1:]:
        with directory:
            directory = directory.below(name, create=create)
    return directory


_MAX_CHARACTERS = 255
"""Of a file's name, on Linux; an encoded name is ASCII."""
_KEPT_CHARACTERS = 180


def resource_dir(base: Path, ref: ObjectRef) -> Path:
    """Return the directory of a resource below `base`, in the layout of ansible-operator.

    Names of RBAC objects have no limit, and any characters but / and %, also those that mean
    something in a path: KUBECONFIG is a list of paths with colons, and Ansible expands $HOME. They
    are encoded with %, so that no other resource has the same directory.
    """
    gvk = ref.gvk
    return base / gvk.group / gvk.version / gvk.kind / ref.namespace / encoded_name(ref.name)


def command_file(base: Path, ref: ObjectRef) -> Path:
    """Return the file with the command of the last failed run of a resource, in the work dir."""
    return resource_dir(base / COMMANDS, ref) / "command.json"


def encoded_name(name: str) -> str:
    """Return the name of the directory of a resource with this name."""
    encoded = quote(name, safe="", errors="replace")
    if len(encoded) <= _MAX_CHARACTERS:
        return encoded
    digest = hashlib.sha256(name.encode(errors="replace")).hexdigest()[:32]
    return f"{encoded[:_KEPT_CHARACTERS]}%_{digest}"
