"""A real HTTP server on loopback that fails in the ways an API server can."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ScriptedServer:
    """Answers with `answer`, which the test sets; without one nothing is ever answered."""

    def __init__(self, folder: Path) -> None:
        """Write kubeconfig files to `folder`."""
        self.answer: Answer = hang
        self.url = ""
        self._folder = folder
        self._runner = web.AppRunner(
            _app(self._handle), shutdown_timeout=0.1, handler_cancellation=True
        )

    async def start(self) -> None:
        """Listen on a free port."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"

    async def stop(self) -> None:
        """Close the port and all connections."""
        await self._runner.cleanup()

    def kubeconfig(self, user: dict[str, Any] | None = None, path: str = "") -> Path:
        """Write a kubeconfig for this server, behind `path`, for the given user entry."""
        file = self._folder / "scripted.kubeconfig"
        file.write_text(json.dumps(kubeconfig(self.url + path, user or {})))
        return file

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        return await self.answer(request)


def kubeconfig(server: str, user: dict[str, Any], **cluster: Any) -> dict[str, Any]:
    """Return a kubeconfig with one context, in the namespace `here`."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "it",
        "clusters": [{"name": "it", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "it", "user": user}],
        "contexts": [
            {"name": "it", "context": {"cluster": "it", "user": "it", "namespace": "here"}}
        ],
    }


def _app(handle: Answer) -> web.Application:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    return app


async def hang(_: web.Request) -> web.StreamResponse:
    """Never answer."""
    await asyncio.Event().wait()
    raise AssertionError


def status(code: int, message: str = "no", **headers: str) -> web.Response:
    """Return an error as the API server gives it."""
    body = {"kind": "Status", "status": "Failure", "code": code, "message": message}
    return web.json_response(body, status=code, headers=headers)


async def stream(request: web.Request, *lines: bytes, stay: bool = False) -> web.StreamResponse:
    """Send the lines of a watch as they are, then end the answer, or stay open."""
    response = web.StreamResponse()
    await response.prepare(request)
    for line in lines:
        await response.write(line)
    if stay:
        await asyncio.Event().wait()
    return response
