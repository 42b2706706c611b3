"""Limit the open connections of a server, and their idle time.

A deliberately slow client holds a file descriptor for each connection, and without descriptors
nothing else works. So each server has a share of them. At the limit, the connection that has been
idle longest is closed for a new one; a connection whose request is being served is never closed.

A TLS connection needs up to 0.7 MB from its first byte on. So of the connections that have not sent
a request yet, which are handshakes as a rule, only the newest are kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import structlog

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
