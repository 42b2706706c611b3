"""The Secret in which all replicas find the same certificates.

Each replica may make and renew them; of two that do so at once, one gets a conflict and takes
what the other has written.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
from collections.abc import Sequence
from typing import Protocol

import structlog

from operator_runner.conversion.authority import Credentials, Lives, renewed
from operator_runner.core.errors import Conflict, NotFound
from operator_runner.core.model import Json

_TRIES = 5
_KEYS = ("ca.crt", "ca.key", "tls.crt", "tls.key")

_log = structlog.get_logger(__name__)


class Api(Protocol):
    """Requests to the API server; raises ApiError."""

    async def request(
        self, method: str, path: str, *, body: Json | None = None, content_type: str = ...
    ) -> Json:
        """Send `body` to a path and return the JSON answer."""


class SharedCredentials:
    """Credentials in a Secret `namespace`/`name`; made by the first who asks."""

    def __init__(self, api: Api, namespace: str, name: str, lives: Lives) -> None:
        """Ask nothing yet."""
        self._api = api
        self._collection = f"/api/v1/namespaces/{namespace}/secrets"
        self._name = name
        self._lives = lives

    async def current(self, names: Sequence[str], *, known: bool) -> Credentials:
        """Return what is to be used, renewed where due; arguments as `authority.renewed`."""
        for _ in range(_TRIES):
            secret = await self._read()
            old = None if secret is None else _decode(secret)
            new = renewed(old, names, dt.datetime.now(dt.UTC), known=known, lives=self._lives)
            if new == old:
                return new
            try:
                await self._write(secret, new)
            except Conflict:
                continue  # another replica was faster; what it wrote is as good
            _log.info("The webhook's certificates were renewed", kept_in=self._name)
            return new
        raise Conflict(f"Secret {self._name}: others write it all the time", 409)

    async def _read(self) -> Json | None:
        try:
            return await self._api.request("GET", f"{self._collection}/{self._name}")
        except NotFound:
            return None

    async def _write(self, secret: Json | None, new: Credentials) -> None:
        values = (new.authorities, new.authority_key, new.certificate, new.key)
        data = {
            key: base64.b64encode(value).decode() for key, value in zip(_KEYS, values, strict=True)
        }
        if secret is None:
            body = {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": self._name},
                "type": "kubernetes.io/tls",
                "data": data,
            }
            await self._api.request("POST", self._collection, body=body)
        else:
            # The resourceVersion inside makes another's write in between a Conflict.
            body = secret | {"data": (secret.get("data") or {}) | data}
            await self._api.request("PUT", f"{self._collection}/{self._name}", body=body)


class OwnCredentials:
    """Credentials of a single process, which nobody else ever sees."""

    def __init__(self, lives: Lives) -> None:
        """Make them when asked."""
        self._lives = lives
        self._made: Credentials | None = None

    async def current(self, names: Sequence[str], *, known: bool) -> Credentials:
        """Return what is to be used, renewed where due; arguments as `authority.renewed`."""
        now = dt.datetime.now(dt.UTC)
        self._made = renewed(self._made, names, now, known=known, lives=self._lives)
        return self._made


def _decode(secret: Json) -> Credentials | None:
    data = secret.get("data") or {}
    try:
        return Credentials(*(base64.b64decode(data[key], validate=True) for key in _KEYS))
    except (KeyError, binascii.Error):
        return None
