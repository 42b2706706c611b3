"""The one HTTP session to the API server that all parts share, kopf and the proxy included."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import weakref
from collections.abc import AsyncIterable, AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from aiohttp import hdrs
from aiohttp.payload import BytesPayload
from yarl import URL

from operator_runner.core.errors import Fenced
from operator_runner.core.fencing import WritePermit
from operator_runner.kube import credentials
from operator_runner.kube.credentials import Credentials, is_impersonation
from operator_runner.net.sockets import wait_closed


async def split_lines(chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Yield the lines of a stream, of any length; an unterminated last line is dropped.

    aiohttp's own line iteration raises for lines beyond its buffer; objects are larger.
    """
    parts: list[bytes] = []
    async for chunk in chunks:
        *ended, rest = chunk.split(b"\n")
        for line in ended:
            whole = b"".join([*parts, line])
            parts = []
            if whole:
                yield whole
        if rest:
            parts.append(rest)


_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=10)
"""Only for connecting, because watches are long; api.py sets a timeout for each request."""

_KEEPALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4, "TCP_USER_TIMEOUT": 30_000}
"""An idle connection whose peer is gone is closed after 30 s (the last value is in ms)."""

_NO_LINGER = struct.pack("ii", 1, 0)
"""The C struct linger: on, for 0 seconds."""

ResponseCallback = Callable[[int | None, str, str], None]
"""Takes the status (None without a response), the method and the host of a request."""


class Connection:
    """An open connection to one API server; create it with `connect`."""

    def __init__(
        self, found: Credentials, user_agent: str, source: tuple[Path | None, str] = (None, "")
    ) -> None:
        """Open nothing yet; needs a running event loop. `source` is that of the credentials."""
        self.server = found.server
        self.namespace = found.namespace
        self.impersonated = tuple(
            value
            for name in ("Impersonate-User", "Impersonate-Group")
            for value in found.impersonation.getall(name, ())
        )
        """The user that the kubeconfig impersonates (`as`) and its groups; empty without one."""
        self._credentials = found
        self._origin = URL(found.server).origin()
        self._parts = urlsplit(found.server)
        self._user_agent = user_agent
        self._source = source
        self._watchers: list[tuple[Callable[[str], None], Callable[[str, bool], None]]] = []
        self._live: dict[str, object] = {}
        self._counters: list[ResponseCallback] = []
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._request_class = _request_class(found)
        self._connector = aiohttp.TCPConnector(limit=0, socket_factory=self._open_socket)
        self.http = self.session()

    def session(
        self,
        response_class: type[aiohttp.ClientResponse] = aiohttp.ClientResponse,
        *middlewares: aiohttp.ClientMiddlewareType,
    ) -> aiohttp.ClientSession:
        """Return a further session on the same connections; closing it leaves them open."""
        headers = {hdrs.USER_AGENT: self._user_agent}
        if not self._credentials.compression:
            headers[hdrs.ACCEPT_ENCODING] = "identity"
        return aiohttp.ClientSession(
            base_url=self.server + "/",
            connector=self._connector,
            connector_owner=False,
            request_class=self._request_class,
            headers=headers,
            timeout=_TIMEOUT,
            middlewares=(*middlewares, self._authenticate),
            trace_configs=[self._trace()],
            proxy=self._credentials.proxy,
            response_class=response_class,
        )

    def url(self, path: str) -> URL:
        """Return the URL of an API path such as `/api/v1`, below the server's own path if any.

        The path must be percent-encoded.
        """
        return URL(self.server + path, encoded=True)

    def path_of(self, url: URL) -> str:
        """Return the API path of a request's URL, without the server's own path."""
        return url.path.removeprefix(self._parts.path)

    def on_watch(self, begun: Callable[[str], None], ended: Callable[[str, bool], None]) -> None:
        """Call `begun` and `ended` with the path of each watch of the operator, not of runs.

        `begun` is called after a response of 200, `ended` at the end of the watch. The second
        argument of `ended` is False if the watch is not restarted soon: it is not needed any more,
        or the kind or permissions are missing.
        """
        self._watchers.append((begun, ended))

    def watch_started(self, path: str) -> Callable[[], None]:
        """Report an accepted watch; call the returned function at its end."""
        token = self._live[path] = object()
        for begun, _ in self._watchers:
            begun(path)

        def end() -> None:
            # An abandoned stream may end after the next one has started.
            if self._live.get(path) is token:
                del self._live[path]
                self._report_end(path, again=True)

        return end

    def watch_not_restarted(self, path: str) -> None:
        """Report a watch that is not restarted soon, see `on_watch`."""
        self._report_end(path, again=False)

    def _report_end(self, path: str, *, again: bool) -> None:
        for _, ended in self._watchers:
            ended(path, again)

    def on_response(self, callback: ResponseCallback) -> None:
        """Call `callback` for every request to the API server."""
        self._counters.append(callback)

    def abort(self) -> None:
        """Break all connections, and drop what is not sent yet; later requests open new ones.

        After an ordinary close, asyncio continues to send, and the kernel does so even after the
        process has ended.
        """
        for sock in list(self._sockets):
            with contextlib.suppress(OSError):  # closed
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
                sock.shutdown(socket.SHUT_RDWR)

    async def again(self) -> Connection:
        """Open another connection to the server with its own credentials, for another event loop.

        Its requests are reported to the callbacks of this one. Raises ConfigError.
        """
        kubeconfig, context = self._source
        other = await connect(kubeconfig, user_agent=self._user_agent, context=context)
        for counter in self._counters:
            other.on_response(counter)
        return other

    async def close(self) -> None:
        """Close the session and all connections; return when the sockets are closed."""
        await self.http.close()
        await self._connector.close()
        # The connector does not wait for the TLS shutdown of a watch that was just closed.
        await wait_closed(self._sockets)

    def _open_socket(self, address: Any) -> socket.socket:
        sock = _open_socket(address)
        self._sockets.add(sock)
        return sock

    async def _authenticate(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Add the current credentials; after a 401, once more with renewed ones."""
        if request.url.origin() != self._origin:
            return await handler(request)
        if self._credentials.tls_name:
            request.server_hostname = self._credentials.tls_name
        await self._set_header(request)
        response = await handler(request)
        if response.status != 401 or not _repeatable(request):  # noqa: PLR2004
            return response
        if not await self._credentials.renew():
            return response
        response.close()
        await self._set_header(request)
        return await handler(request)

    async def _set_header(self, request: aiohttp.ClientRequest) -> None:
        if header := await self._credentials.header():
            request.headers[hdrs.AUTHORIZATION] = header
        if self.impersonated:
            for name in [each for each in request.headers if is_impersonation(each)]:
                request.headers.popall(name, None)
            request.headers.extend(self._credentials.impersonation)

    def _trace(self) -> aiohttp.TraceConfig:
        async def ended(
            _session: aiohttp.ClientSession,
            _context: SimpleNamespace,
            end: aiohttp.TraceRequestEndParams,
        ) -> None:
            self._answered(end.response.status, end.method)

        async def failed(
            _session: aiohttp.ClientSession,
            _context: SimpleNamespace,
            failure: aiohttp.TraceRequestExceptionParams,
        ) -> None:
            if not isinstance(failure.exception, Fenced):
                self._answered(None, failure.method)

        trace = aiohttp.TraceConfig()
        # Called on the open connection, immediately before the write to the socket.
        trace.on_request_headers_sent.append(_check_permit)
        trace.on_request_chunk_sent.append(_check_fence)
        trace.on_request_end.append(ended)
        trace.on_request_exception.append(failed)
        return trace

    def _answered(self, status: int | None, method: str) -> None:
        for count in self._counters:
            # As in client-go: with the port, even if it is the default one.
            count(status, method, self._parts.netloc.rpartition("@")[2])


async def connect(kubeconfig: Path | None, *, user_agent: str, context: str = "") -> Connection:
    """Load the credentials (for the sources see credentials.load) and open the session.

    Send nothing yet. Raises ConfigError with the file and a hint.
    """
    found = await credentials.load(kubeconfig, context)
    return Connection(found, user_agent, (kubeconfig, context))


def _request_class(found: Credentials) -> type[aiohttp.ClientRequest]:
    class Request(aiohttp.ClientRequest):
        """Uses the current TLS context: connections with renewed certificates are others."""

        @property
        def ssl(self) -> ssl.SSLContext:
            return found.ssl_context

        @property
        def connection_key(self) -> Any:
            return super().connection_key._replace(ssl=found.ssl_context)

    return Request


def fenced_by(error: BaseException) -> Fenced | None:
    """Return the refusal that ended a request while its body was sent, else None."""
    return error.__cause__ if isinstance(error.__cause__, Fenced) else None


async def _check_permit(
    _session: aiohttp.ClientSession, context: SimpleNamespace, _params: object
) -> None:
    """Check the permit of a write, given as `trace_request_ctx`. Raises Fenced."""
    permit: WritePermit | None = context.trace_request_ctx
    if permit is not None:
        permit.check()


async def _check_fence(
    _session: aiohttp.ClientSession, context: SimpleNamespace, _params: object
) -> None:
    """Check the fence of a body; the API server limits the time since it received the headers."""
    permit: WritePermit | None = context.trace_request_ctx
    if permit is not None:
        permit.fence.check()


def _repeatable(request: aiohttp.ClientRequest) -> bool:
    return not request.body or isinstance(request.body, BytesPayload)


def _open_socket(address: Any) -> socket.socket:
    family, kind, protocol, _, _ = address
    sock = socket.socket(family, kind, protocol)
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        # Optional: not every system and sandbox supports each of them.
        with contextlib.suppress(AttributeError, OSError):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return sock
