"""Where the work dir lies: in the image, not in /tmp.

What lies in /tmp cannot be kept from runs that may not mount (see isolation/): all else in /tmp
is theirs to read. So the image has a directory for it, and the usual path leads there.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from operator_runner.core.settings import DEFAULT_WORK_DIR

_OF_IMAGE = Path("/var/lib/operator-runner")


def placed(work_dir: Path, usual: Path = DEFAULT_WORK_DIR, of_image: Path = _OF_IMAGE) -> Path:
    """Return where a work dir is to lie; if that is elsewhere, a link leads there."""
    if work_dir != usual or (usual.is_dir() and not usual.is_symlink()):
        return work_dir
    if not os.access(of_image, os.W_OK | os.X_OK):
        return work_dir
    with contextlib.suppress(OSError):  # people find it by the log as well
        usual.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        usual.symlink_to(of_image)
    return of_image
