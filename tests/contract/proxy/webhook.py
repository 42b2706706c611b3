"""A webhook for admission that delays objects of a test."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

from aiohttp import web

from operator_runner.net.certificates import server_context
from operator_runner.net.sockets import Listener
from operator_runner.telemetry.servers import serve


class Webhook:
    """Answers the API server over TLS on loopback."""

    def __init__(self, folder: Path) -> None:
        """Write the certificate to `folder`."""
        self.hold_from = ""
        """Writes of this name and of those after it in the alphabet wait for `release`."""
        self.admitted: list[str] = []
        """Names of objects that were reviewed."""
        self.held = asyncio.Event()
        self.release = asyncio.Event()
        self._certificate = folder / "webhook.crt"
        app = web.Application()
        app.router.add_post("/admit", self._admit)
        self._app = app
        self._server: Listener | None = None
        self._url = ""

    async def start(self) -> None:
        """Listen on a free port."""
        context = server_context(self._certificate, ["127.0.0.1"], "webhook")
        self._server = await serve(self._app, "127.0.0.1", 0, "--webhook-port", context)
        self._url = f"https://127.0.0.1:{self._server.port}"

    async def stop(self) -> None:
        """Release everything."""
        self.release.set()
        if self._server is not None:
            await self._server.stop()

    def client(self, path: str) -> dict[str, str]:
        """Return the clientConfig of a webhook."""
        authority = base64.b64encode(self._certificate.read_bytes()).decode()
        return {"url": self._url + path, "caBundle": authority}

    def hold(self, name: str) -> None:
        """Hold the next writes from `name` on."""
        self.hold_from = name
        self.held.clear()
        self.release.clear()
        self.admitted.clear()

    async def _admit(self, request: web.Request) -> web.Response:
        review = await request.json()
        name = review["request"]["name"]
        self.admitted.append(name)
        if self.hold_from and name >= self.hold_from:
            self.held.set()
            await self.release.wait()
        return _answer(review, {"allowed": True})


def _answer(review: dict[str, Any], response: dict[str, Any]) -> web.Response:
    response["uid"] = review["request"]["uid"]
    kind, version = review["kind"], review["apiVersion"]
    return web.json_response({"apiVersion": version, "kind": kind, "response": response})
