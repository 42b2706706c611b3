"""Sockets that may speak TLS: a server's, and how all of them are left at the end.

asyncio's own servers forget a connection whose TLS handshake is under way when they are closed,
and close others only when the peer has said goodbye, which a peer may never do.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Collection
from weakref import WeakSet

import structlog
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.log import server_logger

from operator_runner.core.async_tasks import end_tasks
from operator_runner.net.connections import Connections, Open, abort

_log = structlog.get_logger(__name__)

_BACKLOG = 128
_TLS_HANDSHAKE = b"\x16"
"""RFC 8446, 5.1: the type of the record that opens a TLS connection."""
_SILENCE = 10.0
"""Seconds that a client may take for its first byte where it tells what the client speaks."""
_SHORT_OF_FILES = 1.0
"""Seconds until the next try where a connection could not be accepted."""
_HANDSHAKE = 10.0
"""Seconds for a TLS handshake."""
_SHUTDOWN = 5.0
"""Seconds that a client may take to answer the end of a TLS connection."""
_GOODBYE = 1.0
"""Seconds that closing waits at most for the peers' ends of TLS connections."""
_NOT_HERE = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}
"""What the kernel says where IPv6 is off, or where an address belongs to another machine."""


class Listener:
    """Accepts connections for an aiohttp server: plain ones, TLS, or both on one port.

    Both: runs come with TLS, for only then do their clients send the token. Programs that know
    ansible-operator's proxy come in the clear, and shall be served, or told why not, on the same
    port. The first byte of a connection tells which.
    """

    def __init__(
        self,
        runner: web.BaseRunner,
        context: ssl.SSLContext | None = None,
        *,
        plain_too: bool = False,
        connections: Connections | None = None,
    ) -> None:
        """`runner` must have been set up. With a `context` TLS is spoken, and `plain_too`.

        `connections` bounds what is open; the server's handlers say there what they serve.
        """
        assert runner.server is not None
        server_logger.addFilter(_of_the_operator)
        self._connections = connections or Connections()
        self._runner = runner
        self._protocol = runner.server
        self._context = context
        self._looks = context is not None and plain_too
        self._beginning: set[asyncio.Task[None]] = set()
        self.port = 0
        self._listening: list[socket.socket] = []
        self._sockets: WeakSet[socket.socket] = WeakSet()
        self._transports: WeakSet[asyncio.BaseTransport] = WeakSet()

    def open(self, host: str, port: int) -> None:
        """Listen; `port` is the real one then, also where 0 asked for any.

        Without a `host`: on every interface, by IPv6 too where there is any. Raises OSError.
        """
        self._listening = _bound(host, port)
        for listening in self._listening:
            self._accept_from(listening)
        self.port = self._connections.port = _port(self._listening[0])

    async def stop(self) -> None:
        """Accept no more, end the server and its connections; return when these are closed."""
        loop = asyncio.get_running_loop()
        for listening in self._listening:
            loop.remove_reader(listening)
            listening.close()
        # What was accepted last begins its handshake: until then, asyncio could not end it.
        for _ in range(2):
            await asyncio.sleep(0)
        await end_tasks(self._beginning)
        self._connections.end()
        await self._runner.cleanup()
        if not await closed(self._sockets):
            for transport in self._transports:
                abort(transport)
            await asyncio.sleep(0)

    def _accept_from(self, listening: socket.socket) -> None:
        if listening.fileno() >= 0:
            asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        # No task waits for it: one that is cancelled would lose what was accepted just then.
        try:
            connection, _ = listening.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:
            _log.warning("A connection could not be accepted", reason=str(error))
            loop = asyncio.get_running_loop()
            loop.remove_reader(listening)
            loop.call_later(_SHORT_OF_FILES, self._accept_from, listening)
            return
        connection.setblocking(False)
        admitted = self._connections.admit(connection)
        if admitted is None:
            connection.close()
            return
        task = asyncio.create_task(self._begin(admitted), name="begin of a connection")
        self._beginning.add(task)
        task.add_done_callback(self._beginning.discard)

    async def _begin(self, admitted: Open) -> None:
        connection, handed_over = admitted.sock, False
        try:
            context = await self._wanted(connection) if self._looks else self._context
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            loop = asyncio.get_running_loop()
            # From here on the socket is the event loop's to close, failed handshakes included.
            handed_over = True
            self._sockets.add(connection)
            protocol = self._protocol()
            self._connections.began(admitted, protocol)
            admitted.transport, _ = await loop.connect_accepted_socket(
                lambda: protocol,
                connection,
                ssl=context,
                ssl_handshake_timeout=None if context is None else _HANDSHAKE,
                ssl_shutdown_timeout=None if context is None else _SHUTDOWN,
            )
            self._transports.add(admitted.transport)
        except OSError as error:
            # TimeoutError and ssl.SSLError included: a client that left or speaks neither.
            _log.debug("A connection did not begin", reason=str(error) or type(error).__name__)
        finally:
            if not handed_over:
                connection.close()

    async def _wanted(self, connection: socket.socket) -> ssl.SSLContext | None:
        """Return the context if the client wants TLS. Raises OSError if it says nothing."""
        async with asyncio.timeout(_SILENCE):
            first = await _first_byte(connection)
        if not first:
            raise ConnectionAbortedError("closed before its first byte")
        return self._context if first == _TLS_HANDSHAKE else None


async def closed(sockets: Collection[socket.socket]) -> bool:
    """Wait until all are closed, for a second at most; return whether they are."""
    try:
        async with asyncio.timeout(_GOODBYE):
            while any(sock.fileno() >= 0 for sock in sockets):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    except TimeoutError:
        return False
    return True


def _of_the_operator(record: logging.LogRecord) -> bool:
    """Whether a record of aiohttp's is about the operator: requests of others may be malformed."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError | web.RequestPayloadError)


def _bound(host: str, port: int) -> list[socket.socket]:
    """Return a listening socket for each address of `host`, all with one port."""
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    listening: list[socket.socket] = []
    missing: OSError | None = None
    for family, _, _, _, address in dict.fromkeys(found):
        number = _port(listening[0]) if listening else port
        try:
            one = socket.create_server((address[0], number), family=family, backlog=_BACKLOG)
        except OSError as error:
            if error.errno in _NOT_HERE:
                missing = error
                continue
            for other in listening:
                other.close()
            raise
        one.setblocking(False)
        listening.append(one)
    if not listening:
        raise missing or OSError(errno.EADDRNOTAVAIL, "no address")
    return listening


def _port(listening: socket.socket) -> int:
    return int(listening.getsockname()[1])


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
