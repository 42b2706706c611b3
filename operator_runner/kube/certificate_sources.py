"""Sources of own certificates of the webhook, and of the port for Jobs: a shared Secret, or memory.

Each replica may create and renew the Secret; of two that do so at once, one gets a Conflict and
uses the certificates of the other.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
from collections.abc import Sequence
from typing import Protocol

import structlog

from operator_runner.core.errors import Conflict, NotFound
from operator_runner.core.model import Json
from operator_runner.kube.api import Api
from operator_runner.net.certificates import CertificateBundle, CertificateLifetimes, renew

_ATTEMPTS = 5
SECRET_KEYS = ("ca.crt", "ca.key", "tls.crt", "tls.key")
"""Keys of the Secret; others, such as cert-manager, do not store the key of the CA."""

_log = structlog.get_logger(__name__)


class CertificateSource(Protocol):
    """Provides the certificates of a server."""

    async def current(self, names: Sequence[str], *, is_published: bool) -> CertificateBundle:
        """Return the certificates to use, renewed if due; see `certificates.renew`.

        Raises ApiError.
        """


class SecretCertificates:
    """Certificates in the Secret `namespace`/`name`, which is created if it does not exist."""

    def __init__(
        self, api: Api, namespace: str, name: str, lifetimes: CertificateLifetimes
    ) -> None:
        """Send nothing yet."""
        self._api = api
        self._collection = f"/api/v1/namespaces/{namespace}/secrets"
        self._name = name
        self._lifetimes = lifetimes

    async def current(self, names: Sequence[str], *, is_published: bool) -> CertificateBundle:
        """Return the certificates to use, renewed if due."""
        for _ in range(_ATTEMPTS):
            secret = await self._read()
            old = None if secret is None else _decode(secret)
            new = renew(
                old,
                names,
                dt.datetime.now(dt.UTC),
                is_published=is_published,
                lifetimes=self._lifetimes,
            )
            if new == old:
                return new
            try:
                await self._write(secret, new)
            except Conflict:
                continue  # another replica was faster; use its certificates
            _log.info("Renewed serving certificates", secret=self._name)
            return new
        raise Conflict(
            f"Secret {self._name}: {_ATTEMPTS} conflicting writes in a row; "
            "only replicas of the operator may write it",
            409,
        )

    async def _read(self) -> Json | None:
        try:
            return await self._api.request("GET", f"{self._collection}/{self._name}")
        except NotFound:
            return None

    async def _write(self, secret: Json | None, new: CertificateBundle) -> None:
        values = (new.authorities, new.authority_key, new.certificate, new.key)
        data = {
            key: base64.b64encode(value).decode()
            for key, value in zip(SECRET_KEYS, values, strict=True)
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
            # With its resourceVersion, a concurrent write is a Conflict.
            body = secret | {"data": (secret.get("data") or {}) | data}
            await self._api.request("PUT", f"{self._collection}/{self._name}", body=body)


class InMemoryCertificates:
    """Certificates of a single process, which are not stored."""

    def __init__(self, lifetimes: CertificateLifetimes) -> None:
        """Create them on the first use."""
        self._lifetimes = lifetimes
        self._certificates: CertificateBundle | None = None

    async def current(self, names: Sequence[str], *, is_published: bool) -> CertificateBundle:
        """Return the certificates to use, renewed if due."""
        now = dt.datetime.now(dt.UTC)
        self._certificates = renew(
            self._certificates, names, now, is_published=is_published, lifetimes=self._lifetimes
        )
        return self._certificates


def _decode(secret: Json) -> CertificateBundle | None:
    data = secret.get("data") or {}
    try:
        return CertificateBundle(
            *(base64.b64decode(data[key], validate=True) for key in SECRET_KEYS)
        )
    except (KeyError, binascii.Error):
        return None
