"""The server for runs that are Kubernetes Jobs: the proxy, and the input and output of the run.

It listens on all interfaces, so it uses TLS only, and every request needs the token of a Job in
progress. See docs/adr/0038-runs-as-jobs.md.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from weakref import WeakSet

import structlog
from aiohttp import hdrs, web

from operator_runner.ansible.jobs.channel import RunChannel
from operator_runner.ansible.jobs.worker import (
    ADDRESS_HEADER,
    INPUT,
    OFFSET_HEADER,
    OUTPUT,
    RUN,
    UID_HEADER,
)
from operator_runner.core.errors import ConfigError
from operator_runner.core.settings import Address
from operator_runner.kube.certificate_sources import CertificateSource
from operator_runner.net.certificates import load_cert_chain
from operator_runner.net.sockets import Connections, Listener, abort
from operator_runner.proxy.run_tokens import Grant, token_digest
from operator_runner.proxy.server import Proxy, set_up_runner
from operator_runner.proxy.status_errors import StatusError

_MISDIRECTED = 421
_REMEMBERED = 1000
"""Number of ended runs whose Pods get 410, and of those that were left to another replica."""
_RENEWAL_SECONDS = 6 * 3600.0

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Attached:
    grant: Grant
    channel: RunChannel
    connections: WeakSet[asyncio.BaseTransport] = field(default_factory=WeakSet)


@dataclass(frozen=True, slots=True)
class _Expected:
    """A Job that may be adopted until a time of the event loop."""

    until: float
    uid: str
    decided: asyncio.Event = field(default_factory=asyncio.Event)


class JobServer:
    """Serves the Pods of Jobs."""

    def __init__(
        self,
        proxy: Proxy,
        source: CertificateSource,
        port: int,
        address: Address,
        owns: Callable[[str], bool] | None = None,
    ) -> None:
        """Serve nothing yet.

        Port 0 selects a free one. `source` provides certificates that are the same after a restart,
        and for all replicas. `address` is where Pods reach the server; its port is 0 if that
        is the port of the server. `owns` returns whether this replica decides which Jobs of the
        resource with a uid are adopted; None if there are no other replicas with Jobs.
        """
        self._proxy = proxy
        self._owns = owns
        self._source = source
        self._port = port
        self._address = address
        self._connections = Connections()
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._authorities = b""
        self._attached: dict[bytes, _Attached] = {}
        self._ended: deque[bytes] = deque(maxlen=_REMEMBERED)
        self._left: deque[bytes] = deque(maxlen=_REMEMBERED)
        self._expected: dict[bytes, _Expected] = {}
        self.waiting = 0
        """Requests that wait for the adoption of their Job."""
        self._listener: Listener | None = None
        self._stopped = False

    @property
    def address(self) -> Address:
        """Return where Pods reach the server; before it listens, the port may be 0."""
        port = self._port if self._listener is None else self._listener.port
        return Address(self._address.host, self._address.port or port)

    @property
    def authorities(self) -> bytes:
        """Return the CAs of the server as PEM."""
        return self._authorities

    @property
    def is_sharded(self) -> bool:
        """Return whether other replicas behind the address have Jobs too."""
        return self._owns is not None

    async def start(self) -> None:
        """Listen, unless `stop` has been called.

        Raises ApiError if there are no certificates, and ConfigError if the port cannot be used.
        """
        await self._load_certificates()
        runner = await set_up_runner(self._handle)
        if self._stopped:
            await runner.cleanup()
            return
        self._listener = Listener(runner, self._context, connections=self._connections)
        try:
            self._listener.open("", self._port)
        except OSError as error:
            raise ConfigError(
                f"--jobs-port={self._port}: {error.strerror or error}; choose a free port"
            ) from error
        _log.info("Serving port for Jobs", address=f"{self.address.host}:{self.address.port}")

    async def stop(self) -> None:
        """Close the server and its connections; another call does nothing.

        Call it before the runs of Jobs that are left to the next operator end. Their Pods cannot
        connect any more then, and wait for it. A response would end them.
        """
        if self._stopped:
            return
        self._stopped = True
        if self._listener is not None:
            await self._listener.stop()

    def expect(self, token: str, uid: str, seconds: float) -> None:
        """Let requests with `token` wait until its Job is attached or refused, within `seconds`.

        `uid` is that of its resource. A run that is attached, or has ended, is not waited for.
        """
        digest = token_digest(token)
        if digest not in self._attached and digest not in self._ended:
            until = asyncio.get_running_loop().time() + seconds
            self._expected[digest] = _Expected(until, uid)

    def forget(self, is_lost: Callable[[str], bool]) -> None:
        """Leave the expected Jobs of resources, by uid, to another replica."""
        for digest in [key for key, each in self._expected.items() if is_lost(each.uid)]:
            self._left.append(digest)
            self._decide(digest)

    def refuse(self, token: str) -> None:
        """Refuse requests with the token of a Job that is not adopted."""
        self._decide(token_digest(token))

    @contextmanager
    def attach(
        self,
        run_id: str,
        token: str,
        channel: RunChannel,
        is_left: Callable[[], bool] = lambda: False,
    ) -> Iterator[None]:
        """Let `token` give the access of a run inside the block, and use its channel.

        `is_left` returns, in the end, whether the Job is left to another operator: its Pod gets no
        answer then, since 410 or 401 would end the play.
        """
        digest = token_digest(token)
        with suppress(ValueError):
            self._left.remove(digest)
        attached = self._attached[digest] = _Attached(self._proxy.granted(run_id), channel)
        self._decide(digest)
        try:
            yield
        finally:
            del self._attached[digest]
            (self._left if is_left() else self._ended).append(digest)
            for connection in list(attached.connections):
                abort(connection)

    def _decide(self, digest: bytes) -> None:
        if (expected := self._expected.pop(digest, None)) is not None:
            expected.decided.set()

    async def renew(self) -> None:
        """Renew the certificates when due, until cancelled; failures are logged."""
        while True:
            await asyncio.sleep(_RENEWAL_SECONDS)
            try:
                await self._load_certificates()
            except Exception as error:  # noqa: BLE001 (the current ones are valid for long)
                reason = str(error) or type(error).__name__
                _log.warning("Cannot renew the certificates for Jobs", error=reason)

    async def _load_certificates(self) -> None:
        found = await self._source.current(_names(self._address.host), is_published=True)
        load_cert_chain(self._context, found.certificate, found.key)
        self._authorities = found.authorities

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            if self.is_sharded and request.path == RUN:
                return self._located(request)
            attached = await self._authenticate(request)
            if request.path not in {INPUT, OUTPUT}:
                return await self._proxy.respond(
                    request, lambda _: attached.grant, self._connections
                )
            with self._connections.serving(request.protocol):
                return await _exchange(request, attached.channel)
        except StatusError as failure:
            return failure.response()

    def _located(self, request: web.BaseRequest) -> web.StreamResponse:
        """Return the address of this replica if the run is here, or is not adopted.

        Raises StatusError if another replica has the run or will have it.
        """
        assert self._owns is not None
        digest = _token_of(request)
        if digest not in self._attached and digest not in self._expected:
            is_mine = self._owns(request.headers.get(UID_HEADER, ""))
            if digest in self._left or not is_mine:
                raise StatusError(_MISDIRECTED, "another replica has the run; ask again")
        name = request.transport and request.transport.get_extra_info("sockname")
        return web.Response(headers={ADDRESS_HEADER: f"{name[0]}:{name[1]}"} if name else {})

    async def _authenticate(self, request: web.BaseRequest) -> _Attached:
        """Return the run of a request. Raises StatusError."""
        digest = _token_of(request)
        attached = self._attached.get(digest) or await self._adopted(digest, request)
        if attached is None:
            if digest in self._left:
                if request.transport is not None:
                    # Clients repeat a request without an answer, but not one that is refused.
                    abort(request.transport)
                raise StatusError(_MISDIRECTED, "another replica has the run")
            if digest in self._ended and request.path in {INPUT, OUTPUT}:
                raise StatusError(410, "the run has ended")
            raise StatusError(401, "invalid token: it is valid until the run of the Job ends")
        if request.transport is not None:
            attached.grant.connections.add(request.transport)
            attached.connections.add(request.transport)
        return attached

    async def _adopted(self, digest: bytes, request: web.BaseRequest) -> _Attached | None:
        """Wait for the run of a token if its Job may be adopted."""
        expected = self._expected.get(digest)
        if expected is None:
            return None
        self.waiting += 1
        try:
            with suppress(TimeoutError), self._connections.serving(request.protocol):
                async with asyncio.timeout_at(expected.until):
                    await expected.decided.wait()
        finally:
            self.waiting -= 1
        return self._attached.get(digest)


async def _exchange(request: web.BaseRequest, channel: RunChannel) -> web.StreamResponse:
    """Send the input, report how much output has been received, or receive the next part of it."""
    if request.path == INPUT:
        return web.FileResponse(channel.input_file)
    if request.method == hdrs.METH_POST:
        offset = request.headers.get(OFFSET_HEADER, "")
        write = channel.open_writer(int(offset) if offset.isdigit() else -1)
        if write is None:
            raise StatusError(409, f"unexpected offset: the next byte is number {channel.received}")
        async for chunk in request.content.iter_any():
            await write(chunk)
    return web.Response(headers={OFFSET_HEADER: str(channel.received)})


def _names(host: str) -> list[str]:
    """Return the names of the serving certificate; the Pod connects through a relay on loopback."""
    return list(dict.fromkeys([host, "localhost", "127.0.0.1"]))


def _token_of(request: web.BaseRequest) -> bytes:
    """Return the digest of the token of a request, empty without one."""
    scheme, _, token = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
    return token_digest(token.strip()) if scheme.lower() == "bearer" else b""
