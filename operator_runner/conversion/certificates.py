"""The certificate that the webhook's server shows; it can change while requests go on."""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from pathlib import Path

import structlog

from operator_runner.conversion.authority import expires
from operator_runner.net.tls_keys import load_key

CERTIFICATE, KEY = "tls.crt", "tls.key"
_LOOK = 5.0
"""Seconds between two looks at the files; the kubelet needs a minute to renew them."""

_log = structlog.get_logger(__name__)


class Serving:
    """A TLS context for the server, whose certificate is loaded later and may be replaced."""

    def __init__(self) -> None:
        """Have no certificate yet: until then every handshake fails."""
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._loaded = ""

    @property
    def is_loaded(self) -> bool:
        """Whether there is a certificate to show."""
        return bool(self._loaded)

    def load(self, certificate: bytes, key: bytes) -> None:
        """Show this certificate (PEM, with its chain) from the next handshake on.

        Raises ValueError if it is none, or if the key is another one's; what was there stays.
        """
        mark = hashlib.sha256(certificate + b"\0" + key).hexdigest()
        if mark == self._loaded:
            return
        until = expires(certificate)
        try:
            self._check_and_load(certificate, key)
        except ssl.SSLError as error:
            raise ValueError(f"certificate and key do not fit: {error.reason or error}") from error
        self._loaded = mark
        _log.info("The webhook has a certificate", until=until.isoformat())

    def _check_and_load(self, certificate: bytes, key: bytes) -> None:
        # A context keeps half of what does not fit.
        load_key(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), certificate, key)
        load_key(self.context, certificate, key)


def has_files(folder: Path) -> bool:
    """Tell whether somebody has put a certificate there."""
    return (folder / CERTIFICATE).exists() or (folder / KEY).exists()


class CertificateFiles:
    """Certificates of somebody else, cert-manager say, in a directory; loaded when they change."""

    def __init__(self, folder: Path, serving: Serving) -> None:
        """Take `tls.crt` and `tls.key` in `folder`."""
        self._folder = folder
        self._serving = serving
        self._problem: str | None = f"{folder} has not been read yet"

    def missing(self) -> str | None:
        """Return why the API server cannot be answered, None if it can."""
        return None if self._serving.is_loaded else self._problem

    async def run(self) -> None:
        """Look at the files until cancelled."""
        while True:
            problem = self._look()
            if problem is not None and problem != self._problem:
                _log.warning("The webhook's certificate cannot be loaded", reason=problem)
            self._problem = problem
            await asyncio.sleep(_LOOK)

    def _look(self) -> str | None:
        try:
            pair = [(self._folder / name).read_bytes() for name in (CERTIFICATE, KEY)]
            self._serving.load(*pair)
        except (OSError, ValueError) as error:
            return f"--webhook-cert-dir={self._folder}: {error}"
        return None
