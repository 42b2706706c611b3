"""Write files whole or not at all, private from the first byte."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def private_folder(path: Path) -> Path:
    """Create `path` and its missing parents with mode 0700; return it."""
    missing = [path, *path.parents]
    for folder in reversed([folder for folder in missing if not folder.exists()]):
        folder.mkdir(mode=0o700, exist_ok=True)
    path.chmod(0o700)
    return path


def write(path: Path, content: str | bytes, *, mode: int = 0o600) -> Path:
    """Replace the file at `path` in one step; readers see the old or the new content."""
    data = content.encode() if isinstance(content, str) else content
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(data)
    draft.replace(path)
    return path


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait until no other process has locked the file `path`, which is made, and lock it."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
