"""Choose the work dir: the image has one outside /tmp.

Files in /tmp cannot be hidden from runs without mount namespaces (see sandbox/), because such runs
need access to the rest of /tmp. The default path in /tmp becomes a link to the image's directory.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from operator_runner.core.settings import DEFAULT_WORK_DIR

_IMAGE_WORK_DIR = Path("/var/lib/operator-runner")


def resolve_work_dir(
    work_dir: Path, default: Path = DEFAULT_WORK_DIR, image_dir: Path = _IMAGE_WORK_DIR
) -> Path:
    """Return the directory to use for `work_dir`; if it is another one, make a link to it.

    A volume that is mounted at the default path is used. Anything else there may have been left by
    a run of an earlier process.
    """
    if work_dir != default or os.path.ismount(default):
        return work_dir
    if not os.access(image_dir, os.W_OK | os.X_OK):
        return work_dir
    with contextlib.suppress(OSError):  # the link is only for convenience
        default.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        default.symlink_to(image_dir)
    return image_dir
