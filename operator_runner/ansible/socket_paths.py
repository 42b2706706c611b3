"""Let plays use Unix sockets below a TMPDIR of any length.

Since 2.21 ansible-core creates a socket of multiprocessing for each play, and its workers, which
are forks of the play, connect to it. The kernel limits the path of a socket to 107 bytes; if it is
longer the play fails with "Local RPC server did not start".
"""

from __future__ import annotations

import os
import tempfile
from multiprocessing import util

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
    tempfile.tempdir = f"/proc/self/fd/{descriptor}"
    try:
        util.get_temp_dir()  # multiprocessing keeps this directory
    finally:
        tempfile.tempdir = temp_dir
