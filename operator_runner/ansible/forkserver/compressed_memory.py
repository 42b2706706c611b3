"""The memory of an idle fork server, which the operator keeps compressed (see `swap`)."""

from __future__ import annotations

import socket
import sys
from collections import deque

from operator_runner.ansible.forkserver.swap import REFUSED, SIZE_BYTES

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_CHUNK_BYTES = 1024 * 1024
_LEVEL = 1
"""Higher levels take longer than what they save is worth: 3 saves 1 of 14 MiB."""


def receive(channel: socket.socket) -> deque[bytes] | None:
    """Return the memory as compressed chunks; None if the server keeps it.

    Raises EOFError if the server ends meanwhile.
    """
    remaining = int.from_bytes(_read(channel, memoryview(bytearray(SIZE_BYTES))), sys.byteorder)
    if remaining == REFUSED:
        return None
    compressor = zstd.ZstdCompressor(_LEVEL)
    room = memoryview(bytearray(min(_CHUNK_BYTES, remaining)))
    chunks = deque[bytes]()
    while remaining:
        chunk = _read(channel, room[:remaining])
        chunks.append(compressor.compress(chunk, compressor.FLUSH_FRAME))
        remaining -= len(chunk)
    return chunks


def give_back(channel: socket.socket, chunks: deque[bytes]) -> None:
    """Send the memory to the server that it is from, and remove what is sent.

    Raises OSError if the server has ended.
    """
    while chunks:
        channel.sendall(zstd.decompress(chunks.popleft()))


def _read(channel: socket.socket, room: memoryview) -> memoryview:
    filled = 0
    while filled < len(room):
        count = channel.recv_into(room[filled:])
        if not count:
            raise EOFError("the fork server has ended")
        filled += count
    return room
