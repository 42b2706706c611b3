"""Let plays use Unix sockets below a TMPDIR of any length.

Since 2.21 ansible-core creates a socket of multiprocessing for each play, and its workers, which
are forks of the play, connect to it. The kernel limits the path of a socket to 107 bytes; if it is
longer the play fails with "Local RPC server did not start".
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from typing import Any

_MAX_BYTES = 107
_ADDED_BYTES = len("/pymp-12345678/listener-12345678")
"""What multiprocessing appends to TMPDIR."""


def shorten_socket_paths() -> None:
    """Name TMPDIR by a descriptor for the sockets of this process and its forks, if it is too long.

    Call it after TMPDIR is set. The descriptor stays open in forks, but not in other programs.
    """
    temp_dir = tempfile.gettempdir()
    if len(os.fsencode(temp_dir)) + _ADDED_BYTES <= _MAX_BYTES:
        return
    descriptor = os.open(temp_dir, os.O_PATH | os.O_DIRECTORY)
    process: Any = multiprocessing.current_process()
    # multiprocessing has a private setting only.
    process._config["tempdir"] = f"/proc/self/fd/{descriptor}"  # noqa: SLF001
