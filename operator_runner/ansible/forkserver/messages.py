"""Messages with a socket, which pass a run from the operator to the server and its supervisor.

A message has two lines of JSON. The server reads only the first one, so that its memory, which
later runs inherit, never contains secrets of a run. The supervisor reads the second.
"""

from __future__ import annotations

import array
import json
import selectors
import socket
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

MAX_MESSAGE_BYTES = 256 * 1024
"""Bytes of one message; variables travel as files, so that a run's is a few kilobytes."""


def message(for_server: dict[str, Any], for_supervisor: dict[str, Any]) -> bytes:
    """Return the message of a run."""
    return b"\n".join(json.dumps(part).encode() for part in (for_server, for_supervisor))


def send(channel: socket.socket, message: bytes | memoryview, attached: socket.socket) -> None:
    """Send a message, and with it a socket. Raises OSError if the other end is gone."""
    descriptors = array.array("i", [attached.fileno()])
    channel.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])


def wait_readable(sources: Iterable[Any], timeout: float | None = None) -> list[Any]:
    """Return the sockets and descriptors that can be read; none after `timeout` seconds.

    Unlike select.select it takes descriptors above 1023, which an operator with many connections
    passes on.
    """
    with selectors.PollSelector() as selector:
        for source in sources:
            selector.register(source, selectors.EVENT_READ)
        return [key.fileobj for key, _ in selector.select(timeout)]


class Message:
    """The next message of a channel, in memory that is wiped when the block is left."""

    _room = bytearray(MAX_MESSAGE_BYTES)

    def __init__(self, channel: socket.socket) -> None:
        """Wait for the message; `attached` is its socket, if it has one."""
        self._size, rights, _, _ = channel.recvmsg_into(
            [self._room], socket.CMSG_SPACE(array.array("i").itemsize)
        )
        self.attached: socket.socket | None = None
        if rights:
            (descriptor,) = array.array("i", rights[0][2])
            self.attached = socket.socket(fileno=descriptor)

    def __enter__(self) -> Self:
        """Return the message."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        """Wipe the memory."""
        self._room[: self._size] = bytes(self._size)

    @property
    def whole(self) -> memoryview:
        """The complete message, to be forwarded; empty once the other end is closed."""
        return memoryview(self._room)[: self._size]

    def for_server(self) -> Any:
        """Return the part for the server."""
        return json.loads(self._room[: self._room.index(b"\n")])

    def for_supervisor(self) -> Any:
        """Return the description of the run."""
        return json.loads(self._room[self._room.index(b"\n") : self._size])
