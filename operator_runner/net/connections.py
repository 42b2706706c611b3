"""The open connections of one server: how many there may be, and how long one may do nothing.

A client that is slow on purpose holds a descriptor for each connection, and without descriptors
nothing else works. So each server has a share of them. Beyond it the connection that has waited
longest without a complete request makes room; one whose request is served is never closed.
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

_log = structlog.get_logger(__name__)

FIRST_REQUEST_SECONDS = 32.0
"""From the first byte of a connection to the end of its first request, the TLS handshake included.
Kubernetes' servers give as much for the headers (ReadHeaderTimeout)."""
IDLE_SECONDS = 90.0
"""From the end of one request to that of the next (Kubernetes' IdleTimeout)."""
_FEWEST, _MOST = 4, 4096
_SMALL, _LARGE = 16, 8
"""Parts of the descriptors: a sixteenth for probes and metrics, an eighth for proxy and webhook. A
request to the proxy takes a second one. The rest, a good third, is for watches and runs."""


@dataclass(eq=False, slots=True)
class Open:
    """A connection; `protocol` and `transport` are None until it has them."""

    sock: socket.socket
    serving: bool = False
    since: float = field(default_factory=time.monotonic)
    protocol: Any = None
    transport: asyncio.BaseTransport | None = None
    deadline: asyncio.TimerHandle | None = None

    def end(self) -> None:
        """Close at once, whatever the state of the connection."""
        if self.transport is not None:
            abort(self.transport)
            return
        with suppress(OSError):
            # Whoever reads from it sees its end, and closes.
            self.sock.shutdown(socket.SHUT_RDWR)


class Connections:
    """The connections of a server, at most `limit`."""

    def __init__(self, limit: int | None = None) -> None:
        """Without a limit: that of a large server."""
        self.limit = large_share() if limit is None else limit
        self.port = 0
        """For messages; known once the server listens."""
        self._open: list[Open] = []
        self._of_protocol: dict[Any, Open] = {}
        self._warned = False

    def __iter__(self) -> Iterator[Open]:
        """Give those that are open."""
        self._forget_closed()
        return iter(tuple(self._open))

    def admit(self, sock: socket.socket) -> Open | None:
        """Take in a new connection, if need be in place of an idle one; None if all are served."""
        self._forget_closed()
        if len(self._open) >= self.limit:
            idle = min(
                (one for one in self._open if not one.serving),
                key=lambda one: one.since,
                default=None,
            )
            self._warn(refused=idle is None)
            if idle is None:
                return None
            self._drop(idle)
            idle.end()
        admitted = Open(sock)
        self._open.append(admitted)
        self._expire_in(admitted, FIRST_REQUEST_SECONDS)
        return admitted

    def began(self, one: Open, protocol: Any) -> None:
        """Note the protocol of a connection, by which its requests are known."""
        one.protocol = protocol
        self._of_protocol[protocol] = one

    @contextmanager
    def serving(self, protocol: Any) -> Iterator[None]:
        """Keep the connection of a complete request open inside the block, however long it is."""
        one = self._of_protocol.get(protocol)
        if one is None:  # it was closed a moment ago
            yield
            return
        if one.deadline is not None:
            one.deadline.cancel()
        one.serving = True
        try:
            yield
        finally:
            one.serving = False
            one.since = time.monotonic()
            if one.protocol in self._of_protocol:
                self._expire_in(one, IDLE_SECONDS)

    def end(self) -> None:
        """Take no deadline any more: the server closes what is open."""
        for one in list(self._open):
            self._drop(one)

    def _forget_closed(self) -> None:
        for one in [one for one in self._open if one.sock.fileno() < 0]:
            self._drop(one)

    def _drop(self, one: Open) -> None:
        self._open.remove(one)
        self._of_protocol.pop(one.protocol, None)
        if one.deadline is not None:
            one.deadline.cancel()

    def _expire_in(self, one: Open, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        one.deadline = loop.call_later(seconds, self._expire, one)

    def _expire(self, one: Open) -> None:
        self._drop(one)
        one.end()

    def _warn(self, *, refused: bool) -> None:
        if self._warned:
            return
        self._warned = True
        _log.warning(
            "Too many open connections",
            port=self.port,
            limit=self.limit,
            closing="new ones" if refused else "the one that is idle longest",
            cure="raise the limit of open files (ulimit -n), or keep other clients off the port",
        )


def large_share(descriptors: int | None = None) -> int:
    """Return how many connections the proxy or the webhook may have open."""
    return _share(_LARGE, descriptors)


def small_share(descriptors: int | None = None) -> int:
    """Return how many connections the servers of probes and metrics may each have open."""
    return _share(_SMALL, descriptors)


def abort(transport: asyncio.BaseTransport) -> None:
    """Close without waiting until the peer has taken what is buffered, or has said goodbye."""
    end = getattr(transport, "abort", transport.close)
    # In Python 3.11.2 a TLS transport that was closed twice has no protocol any more.
    with contextlib.suppress(AttributeError):
        end()


def _share(part: int, descriptors: int | None) -> int:
    if descriptors is None:
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if descriptors == resource.RLIM_INFINITY:
            return _MOST
    return min(max(descriptors // part, _FEWEST), _MOST)
