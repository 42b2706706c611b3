"""Messages with a socket: how a run gets from the operator to the server and to its supervisor."""

from __future__ import annotations

import array
import socket

MESSAGE_LIMIT = 256 * 1024
"""Bytes of one message; variables travel as files, so that a run's is a few kilobytes."""


def send(channel: socket.socket, message: bytes, attached: socket.socket) -> None:
    """Send a message, and with it a socket. Raises OSError if the other end is gone."""
    descriptors = array.array("i", [attached.fileno()])
    channel.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])


def receive(channel: socket.socket) -> tuple[bytes, socket.socket | None]:
    """Return the next message and its socket; without a socket once the other end is closed."""
    message, rights, _, _ = channel.recvmsg(
        MESSAGE_LIMIT, socket.CMSG_SPACE(array.array("i").itemsize)
    )
    if not rights:
        return message, None
    (descriptor,) = array.array("i", rights[0][2])
    return message, socket.socket(fileno=descriptor)
