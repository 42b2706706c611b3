"""Files of the operator in directories where runs can write: never by way of a link.

A run may put a link in the place of a file or a directory. The operator, which may read what the
run may not, does not follow it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import TextIO


def make_private(path: Path) -> None:
    """Make a directory and those above it, each 0700. A link in the place of one is removed."""
    # mode= of makedirs is for the last part only; every part is to be private.
    for part in reversed([path, *path.parents]):
        if part.is_symlink():
            part.unlink()
        if not part.exists():
            with contextlib.suppress(FileExistsError):
                part.mkdir(mode=0o700)


def write(path: Path, text: str) -> None:
    """Write a file as `open_new` opens it. Raises OSError."""
    with open_new(path) as file:
        file.write(text)


def open_new(path: Path) -> TextIO:
    """Open a file, 0600, to write it anew; a link or a pipe in its place is removed.

    Raises OSError, ELOOP where a directory above it is a link.
    """
    if path.parent.resolve() != path.parent:
        raise OSError(errno.ELOOP, "a link is in the way", str(path))
    if os.path.lexists(path) and not is_file(path):
        path.unlink()
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    return os.fdopen(os.open(path, flags, 0o600), "w", encoding="utf-8")


def read(path: Path) -> str:
    """Return the text of a file. Raises OSError, FileNotFoundError if it is none by itself."""
    if path.parent.resolve() != path.parent or not is_file(path):
        raise FileNotFoundError(errno.ENOENT, "there is no such file", str(path))
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, encoding="utf-8", errors="replace") as file:
        return file.read()


def is_file(path: Path) -> bool:
    """Whether this is a file itself, not a link to one. Raises OSError."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:
        return False
