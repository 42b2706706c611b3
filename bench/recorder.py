"""Record start and end of API requests with a reverse proxy of the API server."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import secrets
import ssl
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import yaml
from aiohttp import web

from bench.api import Api
from operator_runner.net.certificates import CertificateLifetimes, renew

_HOP_HEADERS = {"host", "connection", "transfer-encoding", "content-length", "authorization"}
_AUTOMATIC_HEADERS = ("Accept", "Accept-Encoding", "Content-Type")
"""Headers that aiohttp adds if the client sent none."""
_CLOSE_SECONDS = 0.3
_ADDRESS = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Request:
    """A request of the operator, or of a run through its proxy. Times are Unix timestamps."""

    text: str
    """Verb and last part of the path: `PATCH configmaps`."""
    begin: float
    end: float


class RequestRecorder:
    """Serves on loopback, authenticated by a token."""

    def __init__(self, api: Api, *, tls: bool = False) -> None:
        """Prepare; `serve` starts the server, which speaks HTTP or HTTPS.

        Clients in Go send a token by HTTPS only.
        """
        now = datetime.now(UTC)
        self._certificates = (
            renew(None, [_ADDRESS], now, is_published=False, lifetimes=CertificateLifetimes())
            if tls
            else None
        )
        self._server, self._tls = api.url, api.tls
        self._token = secrets.token_hex(16)
        self._port = 0
        self.requests: list[Request] = []

    @contextmanager
    def serve(self, kubeconfig: Path) -> Iterator[None]:
        """Serve inside the block; write `kubeconfig` for its clients."""
        loop, ready = asyncio.new_event_loop(), threading.Event()
        over = asyncio.Event()
        thread = threading.Thread(
            target=loop.run_until_complete, args=(self._serve(ready, over),), daemon=True
        )
        thread.start()
        ready.wait()
        kubeconfig.touch(mode=0o600)
        kubeconfig.write_text(self._kubeconfig())
        try:
            yield
        finally:
            loop.call_soon_threadsafe(over.set)
            thread.join()
            loop.close()

    async def _serve(self, ready: threading.Event, over: asyncio.Event) -> None:
        context = ssl.create_default_context(cafile=self._tls.authority)
        context.load_cert_chain(self._tls.certificate, self._tls.key)
        connector = aiohttp.TCPConnector(ssl=context, limit=0)
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(
            connector=connector, timeout=timeout, auto_decompress=False
        ) as session:

            async def handle(request: web.BaseRequest) -> web.StreamResponse:
                return await self._relay(session, request)

            runner = web.ServerRunner(web.Server(handle, access_log=None), shutdown_timeout=0.1)
            await runner.setup()
            await web.TCPSite(runner, _ADDRESS, 0, ssl_context=self._serving()).start()
            self._port = int(runner.addresses[0][1])
            ready.set()
            await over.wait()
            await runner.cleanup()
        relays = asyncio.all_tasks() - {asyncio.current_task()}
        for relay in relays:
            relay.cancel()
        await asyncio.gather(*relays, return_exceptions=True)
        # TLS connections close asynchronously, without a notification.
        await asyncio.sleep(_CLOSE_SECONDS)

    async def _relay(
        self, session: aiohttp.ClientSession, request: web.BaseRequest
    ) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {self._token}":
            return web.Response(status=401)
        begin = time.time()
        headers = {
            name: text for name, text in request.headers.items() if name.lower() not in _HOP_HEADERS
        }
        url = f"{self._server}{request.raw_path}"
        body = await request.read()
        async with session.request(
            request.method,
            url,
            headers=headers,
            data=body or None,
            skip_auto_headers=_AUTOMATIC_HEADERS,
        ) as answer:
            kept = {n: text for n, text in answer.headers.items() if n.lower() not in _HOP_HEADERS}
            response = web.StreamResponse(status=answer.status, headers=kept)
            # Clients of watches disconnect at the end.
            with contextlib.suppress(ConnectionResetError):
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
                await response.write_eof()
        if "watch=" not in request.raw_path:
            self.requests.append(Request(_text(request), begin, time.time()))
        return response

    def _serving(self) -> ssl.SSLContext | None:
        """Return the context of the server for HTTPS."""
        if self._certificates is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.NamedTemporaryFile() as file:
            file.write(self._certificates.certificate + self._certificates.key)
            file.flush()
            context.load_cert_chain(file.name)
        return context

    def _kubeconfig(self) -> str:
        cluster = {"server": f"http://{_ADDRESS}:{self._port}"}
        if self._certificates is not None:
            authority = base64.b64encode(self._certificates.authorities).decode()
            cluster = {
                "server": f"https://{_ADDRESS}:{self._port}",
                "certificate-authority-data": authority,
            }
        return yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "bench",
                "clusters": [{"name": "bench", "cluster": cluster}],
                "users": [{"name": "bench", "user": {"token": self._token}}],
                "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
            }
        )


def _text(request: web.BaseRequest) -> str:
    parts = request.path.strip("/").split("/")
    if "namespaces" in parts:
        parts = parts[parts.index("namespaces") + 2 :]
    what = "/".join([parts[0], *parts[2:]]) if parts else "/"
    return f"{request.method} {what}"
