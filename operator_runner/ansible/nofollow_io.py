"""Use directories that runs can write to, without following links.

A run may replace a file or a directory by a link to a file that only the operator can access, or by
a pipe. Names therefore belong to an open directory, which stays the same whatever is replaced.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TextIO

_DIRECTORY = os.O_PATH | os.O_DIRECTORY
_OF_ANOTHER_KIND = {errno.ENOTDIR, errno.ELOOP, errno.ENXIO}
"""Errors from a link, a pipe or a file in the place of another kind."""


@dataclass(frozen=True, slots=True)
class Directory:
    """An open directory; names are those of its entries. Methods raise OSError."""

    path: Path
    """For messages."""
    _descriptor: int

    def __enter__(self) -> Self:
        """Return the directory, which is closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        os.close(self._descriptor)

    def below(self, name: str, *, create: bool = False) -> Directory:
        """Open a directory in it; FileNotFoundError for anything else.

        With `create` a missing one is created, 0700; a link or a file in its place is removed.
        """
        try:
            descriptor = self._open(name, _DIRECTORY)
        except FileNotFoundError:
            if not create:
                raise
            # Another thread may create the directory now.
            with contextlib.suppress(FileNotFoundError, IsADirectoryError):
                os.unlink(name, dir_fd=self._descriptor)
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=self._descriptor)
            descriptor = self._open(name, _DIRECTORY)
        return Directory(self.path / name, descriptor)

    def directories(self) -> list[str]:
        """Return the names of the directories in it, the one that was changed last first."""
        with Directory(self.path, self._open(".", os.O_RDONLY | os.O_DIRECTORY)) as readable:
            entries = list(os.scandir(readable._descriptor))
            found = [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
            found.sort(key=lambda entry: -entry.stat(follow_symlinks=False).st_mtime_ns)
        return [entry.name for entry in found]

    def read(self, name: str) -> str:
        """Return the text of a file; FileNotFoundError for anything but a file."""
        descriptor = self._open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise FileNotFoundError(errno.ENOENT, "not a file", str(self.path / name))
        with os.fdopen(descriptor, encoding="utf-8", errors="replace") as file:
            return file.read()

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
        os.symlink(target, name, dir_fd=self._descriptor)

    def move_here(self, source: Path) -> None:
        """Move a file or a directory here, in place of what has its name."""
        self.remove(source.name)
        os.rename(source, source.name, dst_dir_fd=self._descriptor)

    def remove(self, name: str) -> None:
        """Remove a file, a link or a directory with all that is in it, if there is one."""
        try:
            os.unlink(name, dir_fd=self._descriptor)
        except FileNotFoundError:
            pass
        except IsADirectoryError:
            shutil.rmtree(name, dir_fd=self._descriptor)

    def remove_empty(self, name: str) -> None:
        """Remove a directory if nothing is in it."""
        with contextlib.suppress(OSError):
            os.rmdir(name, dir_fd=self._descriptor)

    def _open(self, name: str, flags: int) -> int:
        try:
            return os.open(name, flags | os.O_NOFOLLOW, 0o600, dir_fd=self._descriptor)
        except OSError as error:
            number = errno.ENOENT if error.errno in _OF_ANOTHER_KIND else error.errno
            raise OSError(number, error.strerror, str(self.path / name)) from error


def open_directory(path: Path, *, create: bool = False) -> Directory:
    """Open the directory with an absolute path that has no links; see `Directory.below`."""
    directory = Directory(Path(path.anchor), os.open(path.anchor, _DIRECTORY))
    for name in path.parts[1:]:
        with directory:
            directory = directory.below(name, create=create)
    return directory
