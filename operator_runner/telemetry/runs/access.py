"""Paths, headers and keys of the API.

Users of the operator's machine find address and key in a file of its work dir. The work dir has
the mode 0700, and runs that are isolated cannot read it.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from operator_runner.core.model import ANNOTATION_DOMAIN

PREFIX = "/api/"
ROOT = f"{PREFIX}v1"
TOKEN_HEADER = "X-Operator-Runner-Token"  # noqa: S105 (a name)
"""Header of a token for this API alone: the API server's proxy drops Authorization."""
AUDIENCE = ANNOTATION_DOMAIN
"""Audience of such a token; no other server accepts it."""
PERMISSION_PREFIX = "/operator-runner"
"""Prefix of paths in permissions: by default every authenticated user may `get` /api/*."""
FILE = "api.json"
_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class LocalAccess:
    """The URL of the API, its key, and the API server of its operator."""

    url: str
    key: str
    cluster: str


def url_of(host: str, port: int, *, secure: bool) -> str:
    """Return the URL of a server that listens on `host`, as seen from its own machine."""
    name = host if host not in {"", "0.0.0.0", "::"} else _LOOPBACK  # noqa: S104 (compared)
    shown = f"[{name}]" if ":" in name else name
    return f"{'https' if secure else 'http'}://{shown}:{port}"


@contextmanager
def published(work_dir: Path, access: LocalAccess) -> Iterator[None]:
    """Keep the file in a work dir inside the block. Raises OSError."""
    path = work_dir / FILE
    path.unlink(missing_ok=True)
    content = {"url": access.url, "key": access.key, "cluster": access.cluster}
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(content, file)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def read(work_dir: Path) -> LocalAccess | None:
    """Return the access to the operator with this work dir, or None.

    Only files of this user, or of root, count: others may write to /tmp.
    """
    try:
        descriptor = os.open(work_dir / FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, encoding="utf-8") as file:
            if os.fstat(file.fileno()).st_uid not in {os.geteuid(), 0}:
                return None
            content = json.load(file)
        return LocalAccess(str(content["url"]), str(content["key"]), str(content["cluster"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
