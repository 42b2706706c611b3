"""Read and write files in directories that runs can write to, without following links.

A run may replace a file or a directory by a link to a file that only the operator can access.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import TextIO


def make_private(path: Path) -> None:
    """Create a directory and its parents, each 0700; links among them are removed."""
    # mode= of makedirs applies to the last part only.
    for part in reversed([path, *path.parents]):
        if part.is_symlink():
            part.unlink()
        if not part.exists():
            with contextlib.suppress(FileExistsError):
                part.mkdir(mode=0o700)


def write(path: Path, text: str) -> None:
    """Write a file opened with `open_new`. Raises OSError."""
    with open_new(path) as file:
        file.write(text)


def open_new(path: Path) -> TextIO:
    """Open a file, 0600 and truncated, for writing; a link or a pipe in its place is removed.

    Raises OSError, ELOOP if a parent directory is a link.
    """
    if path.parent.resolve() != path.parent:
        raise OSError(errno.ELOOP, "a parent directory is a symbolic link", str(path))
    if os.path.lexists(path) and not is_file(path):
        path.unlink()
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    return os.fdopen(os.open(path, flags, 0o600), "w", encoding="utf-8")


def read(path: Path) -> str:
    """Return the text of a file. Raises OSError, FileNotFoundError for anything but a file."""
    if path.parent.resolve() != path.parent or not is_file(path):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, encoding="utf-8", errors="replace") as file:
        return file.read()


def is_file(path: Path) -> bool:
    """Return whether this is a regular file and not a link. Raises OSError."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:
        return False
