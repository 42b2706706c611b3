"""A port that speaks HTTPS and plain HTTP: the first byte of a connection tells which.

Runs come with TLS, for only then do their clients send the token. Programs that know
ansible-operator's proxy come in the clear, and shall be served, or told why not, on the same port.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

_log = structlog.get_logger(__name__)

_BACKLOG = 128
_TLS_HANDSHAKE = b"\x16"
"""RFC 8446, 5.1: the type of the record that opens a TLS connection."""
_SILENCE = 10.0
"""Seconds that a client may take for its first byte."""
_SHORT_OF_FILES = 1.0
"""Seconds until the next try where a connection could not be accepted."""


class Listener:
    """Accepts connections on one address and hands them to a protocol, with or without TLS."""

    def __init__(self, protocol: Callable[[], asyncio.Protocol], context: ssl.SSLContext) -> None:
        """`protocol` makes one protocol for each connection, as for `loop.create_server`."""
        self._protocol = protocol
        self._context = context
        self._tasks: set[asyncio.Task[None]] = set()
        self._socket: socket.socket | None = None

    def open(self, host: str, port: int) -> int:
        """Listen, and return the port: the real one where 0 asked for any. Raises OSError."""
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.create_server(address[:2], family=family, backlog=_BACKLOG)
        listening.setblocking(False)
        self._socket = listening
        self._spawn(self._accept(listening), f"listening on {host}")
        return int(listening.getsockname()[1])

    async def close(self) -> None:
        """Accept no more; connections that have a protocol are its server's to close."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._socket is not None:
            self._socket.close()

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listening)
            except OSError as error:
                _log.warning("A connection could not be accepted", reason=str(error))
                await asyncio.sleep(_SHORT_OF_FILES)
                continue
            connection.setblocking(False)
            self._spawn(self._begin(connection), "first byte of a connection")

    async def _begin(self, connection: socket.socket) -> None:
        handed_over = False
        try:
            async with asyncio.timeout(_SILENCE):
                first = await _first_byte(connection)
            if not first:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            context = self._context if first == _TLS_HANDSHAKE else None
            loop = asyncio.get_running_loop()
            # From here on the socket is the event loop's to close, failed handshakes included.
            handed_over = True
            await loop.connect_accepted_socket(self._protocol, connection, ssl=context)
        except OSError as error:
            # TimeoutError and ssl.SSLError included: a client that left or speaks neither.
            _log.debug("A connection did not begin", reason=str(error) or type(error).__name__)
        finally:
            if not handed_over:
                connection.close()


async def _first_byte(connection: socket.socket) -> bytes:
    """Return the first byte and leave it to be read again; empty if the client has closed."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    while True:
        try:
            return connection.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            readable.clear()
            loop.add_reader(connection, readable.set)
            try:
                await readable.wait()
            finally:
                loop.remove_reader(connection)
