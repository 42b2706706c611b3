"""Listening sockets with optional TLS, and their clean shutdown.

asyncio's own servers do not close connections during a TLS handshake, and close others only after
the TLS shutdown of the peer, which may never happen.

`Connections` limits the open connections of a server, and their idle time. A deliberately slow
client holds a file descriptor for each connection, and without descriptors nothing else works. So
each server has a share of them. At the limit, the connection that has been idle longest is closed
for a new one; a connection whose request is being served is never closed. A TLS connection needs
up to 0.7 MB from its first byte on. So of the connections that have not sent a request yet, which
are handshakes as a rule, only the newest are kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import resource
import socket
import ssl
import time
import traceback
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakSet

import structlog
from aiohttp import ClientError, web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.log import server_logger

from operator_runner.core.async_tasks import end_tasks
from operator_runner.core.deduplication import Deduplicator

_log = structlog.get_logger(__name__)

FIRST_REQUEST_SECONDS = 32.0
"""From accept to the end of the first request, TLS handshake included. The same as
ReadHeaderTimeout of Kubernetes' servers."""
IDLE_SECONDS = 90.0
"""From the end of one request to that of the next (Kubernetes' IdleTimeout)."""

_MIN_CONNECTIONS, _MAX_CONNECTIONS = 4, 4096
_MAX_SMALL_CONNECTIONS = 512
_MAX_NEW_CONNECTIONS = 256
"""Connections before their first request: a client sends it at once, within milliseconds."""
_SMALL_DIVISOR, _LARGE_DIVISOR = 16, 8
"""Shares of the descriptors: a sixteenth for probes and metrics, an eighth for proxy and webhook. A
request to the proxy needs two. The rest, more than a third, is for watches and runs."""


@dataclass(eq=False, slots=True)
class OpenConnection:
    """A connection; `protocol` and `transport` are None until they are created."""

    sock: socket.socket
    serving: bool = False
    is_new: bool = True
    """Whether it has not sent a complete request yet."""
    since: float = field(default_factory=time.monotonic)
    protocol: Any = None
    transport: asyncio.BaseTransport | None = None
    deadline: asyncio.TimerHandle | None = None

    def end(self) -> None:
        """Close at once, in any state."""
        if self.transport is not None:
            abort(self.transport)
            return
        with suppress(OSError):
            # The reader of the socket gets EOF and closes it.
            self.sock.shutdown(socket.SHUT_RDWR)


class Connections:
    """The connections of a server, at most `limit`."""

    def __init__(self, limit: int | None = None) -> None:
        """Use `limit`; None is that of a large server."""
        self.limit = large_share() if limit is None else limit
        self.port = 0
        """Name of the server in log messages; set when it listens."""
        self._open: list[OpenConnection] = []
        self._of_protocol: dict[Any, OpenConnection] = {}
        self._warnings = Deduplicator()

    def __iter__(self) -> Iterator[OpenConnection]:
        """Iterate over the open connections."""
        self._remove_closed()
        return iter(tuple(self._open))

    def admit(self, sock: socket.socket) -> OpenConnection | None:
        """Add a connection, if necessary in place of an idle one; None if all are busy."""
        self._remove_closed()
        new = [one for one in self._open if one.is_new]
        too_many_new = len(new) >= _MAX_NEW_CONNECTIONS
        if too_many_new or len(self._open) >= self.limit:
            closable = new if too_many_new else [one for one in self._open if not one.serving]
            idle = min(closable, key=lambda one: one.since, default=None)
            self._warn(refused=idle is None)
            if idle is None:
                return None
            self._drop(idle)
            idle.end()
        accepted = OpenConnection(sock)
        self._open.append(accepted)
        self._expire_in(accepted, FIRST_REQUEST_SECONDS)
        return accepted

    def set_protocol(self, one: OpenConnection, protocol: Any) -> None:
        """Set the protocol of a connection, which identifies its requests."""
        one.protocol = protocol
        self._of_protocol[protocol] = one

    @contextmanager
    def serving(self, protocol: Any) -> Iterator[None]:
        """Keep the connection of a complete request open inside the block, without a deadline."""
        one = self._of_protocol.get(protocol)
        if one is None:  # already closed
            yield
            return
        if one.deadline is not None:
            one.deadline.cancel()
        one.serving, one.is_new = True, False
        try:
            yield
        finally:
            one.serving = False
            one.since = time.monotonic()
            if one.protocol in self._of_protocol:
                self._expire_in(one, IDLE_SECONDS)

    def end(self) -> None:
        """Cancel all deadlines: the server closes the connections."""
        for one in list(self._open):
            self._drop(one)

    def _remove_closed(self) -> None:
        for one in [one for one in self._open if one.sock.fileno() < 0]:
            self._drop(one)

    def _drop(self, one: OpenConnection) -> None:
        self._open.remove(one)
        self._of_protocol.pop(one.protocol, None)
        if one.deadline is not None:
            one.deadline.cancel()

    def _expire_in(self, one: OpenConnection, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        one.deadline = loop.call_later(seconds, self._expire, one)

    def _expire(self, one: OpenConnection) -> None:
        self._drop(one)
        one.end()

    def _warn(self, *, refused: bool) -> None:
        if not self._warnings.is_new():
            return
        _log.warning(
            "Too many open connections",
            port=self.port,
            limit=self.limit,
            closed="new connections" if refused else "the longest idle connection",
            hint="raise the limit of open files (ulimit -n), or restrict the clients of the port",
        )


def large_share(descriptors: int | None = None) -> int:
    """Return the connection limit of the proxy and of the webhook."""
    return _share(_LARGE_DIVISOR, descriptors)


def small_share(descriptors: int | None = None) -> int:
    """Return the connection limit of the probes server and of the metrics server."""
    return min(_share(_SMALL_DIVISOR, descriptors), _MAX_SMALL_CONNECTIONS)


def abort(transport: asyncio.BaseTransport) -> None:
    """Close without waiting for buffered data to be sent, or for the TLS shutdown."""
    end = getattr(transport, "abort", transport.close)
    # In Python 3.11.2 a TLS transport that was closed twice has lost its protocol.
    with contextlib.suppress(AttributeError):
        end()


def _share(divisor: int, descriptors: int | None) -> int:
    if descriptors is None:
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if descriptors == resource.RLIM_INFINITY:
            return _MAX_CONNECTIONS
    return min(max(descriptors // divisor, _MIN_CONNECTIONS), _MAX_CONNECTIONS)


async def reachable_host(server: str) -> str | None:
    """Return the host at which the API server at a URL can connect to this process, else None.

    That is the host of the URL if all of its addresses are local.
    """
    host = urlsplit(server).hostname or ""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_DGRAM)
    except OSError:
        return None
    is_local = all(_is_local(family, str(address[0])) for family, _, _, _, address in found)
    return host if is_local else None


def _is_local(family: int, address: str) -> bool:
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


_BACKLOG = 128
_TLS_HANDSHAKE = b"\x16"
"""RFC 8446, 5.1: the type of the record that opens a TLS connection."""
_FIRST_BYTE_SECONDS = 10.0
"""Timeout for the first byte of a client, if it decides between TLS and plaintext."""
_ACCEPT_RETRY_SECONDS = 1.0
"""Pause after a failed accept, as for lack of file descriptors."""
_HANDSHAKE_SECONDS = 10.0
_TLS_SHUTDOWN_SECONDS = 5.0
_CLOSE_SECONDS = 1.0
"""Time that closing waits for the TLS shutdown of all peers."""
_PORT_ATTEMPTS = 10
"""For a port that is free on all addresses of a host."""
_UNAVAILABLE = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}
"""IPv6 is disabled, or the address belongs to another machine."""


class Listener:
    """Accepts connections for an aiohttp server: plain ones, TLS, or both on one port.

    Runs use TLS, because only then do their clients send the token. Programs for the proxy of
    ansible-operator use plaintext on the same port, and get a response or an error. The first
    byte of a connection shows the protocol.
    """

    def __init__(
        self,
        runner: web.BaseRunner,
        context: ssl.SSLContext | None = None,
        *,
        allow_plaintext: bool = False,
        connections: Connections | None = None,
    ) -> None:
        """Serve `runner`, which must be set up: with TLS if `context` is given.

        `allow_plaintext` accepts both. `connections` limits the open connections; the handlers of
        the server report to it which ones are being served.
        """
        assert runner.server is not None
        server_logger.addFilter(_is_operator_error)
        self._connections = connections or Connections()
        self._runner = runner
        self._protocol = runner.server
        self._context = context
        self._detects_tls = context is not None and allow_plaintext
        self._handshakes: set[asyncio.Task[None]] = set()
        self.port = 0
        self._listening: list[socket.socket] = []
        self._sockets: WeakSet[socket.socket] = WeakSet()
        self._transports: WeakSet[asyncio.BaseTransport] = WeakSet()

    def open(self, host: str, port: int) -> None:
        """Listen, and set `port` to the actual port if 0 was given.

        An empty `host` is all interfaces, with IPv6 if available. Raises OSError.
        """
        self._listening = _listen_sockets(host, port)
        for listening in self._listening:
            self._accept_from(listening)
        self.port = self._connections.port = _port(self._listening[0])

    async def stop(self) -> None:
        """Stop accepting, close the server and its connections; return when they are closed."""
        loop = asyncio.get_running_loop()
        for listening in self._listening:
            loop.remove_reader(listening)
            listening.close()
        # The last accepted connections start their handshake: before, asyncio cannot cancel it.
        for _ in range(2):
            await asyncio.sleep(0)
        await end_tasks(self._handshakes)
        self._connections.end()
        await self._runner.cleanup()
        if not await wait_closed(self._sockets):
            for transport in self._transports:
                abort(transport)
            await asyncio.sleep(0)

    def _accept_from(self, listening: socket.socket) -> None:
        if listening.fileno() >= 0:
            asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        # Not in a task: cancelling it could lose a connection that was just accepted.
        try:
            connection, _ = listening.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:
            _log.warning("Cannot accept a connection", error=str(error))
            loop = asyncio.get_running_loop()
            loop.remove_reader(listening)
            loop.call_later(_ACCEPT_RETRY_SECONDS, self._accept_from, listening)
            return
        connection.setblocking(False)
        accepted = self._connections.admit(connection)
        if accepted is None:
            connection.close()
            return
        task = asyncio.create_task(self._handshake(accepted), name="TLS handshake")
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    async def _handshake(self, accepted: OpenConnection) -> None:
        connection, handed_over = accepted.sock, False
        try:
            context = await self._select_context(connection) if self._detects_tls else self._context
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            loop = asyncio.get_running_loop()
            # From here on the event loop closes the socket, also after a failed handshake.
            handed_over = True
            self._sockets.add(connection)
            protocol = self._protocol()
            self._connections.set_protocol(accepted, protocol)
            accepted.transport, _ = await loop.connect_accepted_socket(
                lambda: protocol,
                connection,
                ssl=context,
                ssl_handshake_timeout=None if context is None else _HANDSHAKE_SECONDS,
                ssl_shutdown_timeout=None if context is None else _TLS_SHUTDOWN_SECONDS,
            )
            self._transports.add(accepted.transport)
        except OSError as error:
            # Includes TimeoutError and ssl.SSLError: the client disconnected or is not HTTP.
            _log.debug("Connection failed", error=str(error) or type(error).__name__)
            # Its frames refer to the error: until the next full garbage collection, which may be
            # hours away, they keep the buffers of TLS, 0.3 MB.
            traceback.clear_frames(error.__traceback__)
        finally:
            if not handed_over:
                connection.close()

    async def _select_context(self, connection: socket.socket) -> ssl.SSLContext | None:
        """Return the context if the client uses TLS. Raises OSError if it sends nothing."""
        async with asyncio.timeout(_FIRST_BYTE_SECONDS):
            first = await _first_byte(connection)
        if not first:
            raise ConnectionAbortedError("closed before its first byte")
        return self._context if first == _TLS_HANDSHAKE else None


async def wait_closed(sockets: Collection[socket.socket]) -> bool:
    """Wait until all sockets are closed, at most a second; return whether they are."""
    try:
        async with asyncio.timeout(_CLOSE_SECONDS):
            while any(sock.fileno() >= 0 for sock in sockets):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    except TimeoutError:
        return False
    return True


def _is_operator_error(record: logging.LogRecord) -> bool:
    """Return whether a log record of aiohttp is about more than a malformed request.

    Errors of the operator's own connections are not ConnectionErrors but ClientErrors.
    """
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, ClientError):
        return True
    return not isinstance(error, HttpProcessingError | web.RequestPayloadError | ConnectionError)


def _listen_sockets(host: str, port: int) -> list[socket.socket]:
    """Return a listening socket for each address of `host`, all with one port."""
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    addresses = {(family, str(address[0])): None for family, _, _, _, address in found}
    attempts = 1 if port else _PORT_ATTEMPTS
    while True:
        try:
            return _listen(addresses, port)
        except OSError as error:
            attempts -= 1
            # The port that is free on the first address is in use on another one.
            if error.errno != errno.EADDRINUSE or not attempts:
                raise


def _listen(
    addresses: Collection[tuple[socket.AddressFamily, str]], port: int
) -> list[socket.socket]:
    listening: list[socket.socket] = []
    missing: OSError | None = None
    for family, address in addresses:
        number = _port(listening[0]) if listening else port
        try:
            one = socket.create_server((address, number), family=family, backlog=_BACKLOG)
        except OSError as error:
            if error.errno in _UNAVAILABLE:
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
    """Peek at the first byte; empty if the client has closed the connection."""
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
