"""The serving certificate of the webhook; it can be replaced while requests are served."""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from pathlib import Path

import structlog

from operator_runner.net.certificates import expiry, load_cert_chain

CERTIFICATE, KEY = "tls.crt", "tls.key"
_CHECK_SECONDS = 5.0
"""Between two checks of the files; the kubelet updates them within a minute."""

_log = structlog.get_logger(__name__)


class ServingCertificate:
    """The server's TLS context, whose certificate is loaded later and may be replaced."""

    def __init__(self) -> None:
        """Create a context without a certificate: every handshake fails until `load`."""
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._loaded = ""

    @property
    def is_loaded(self) -> bool:
        """Return whether a certificate is loaded."""
        return bool(self._loaded)

    def load(self, certificate: bytes, key: bytes) -> None:
        """Use this certificate (PEM, with its chain) from the next handshake on.

        Raises ValueError if it is invalid or does not match the key, and keeps the last one.
        """
        mark = hashlib.sha256(certificate + b"\0" + key).hexdigest()
        if mark == self._loaded:
            return
        expires = expiry(certificate)
        try:
            self._check_and_load(certificate, key)
        except ssl.SSLError as error:
            raise ValueError(
                f"certificate and key do not match: {error.reason or error}"
            ) from error
        self._loaded = mark
        _log.info("Loaded webhook certificate", expires=expires.isoformat())

    def _check_and_load(self, certificate: bytes, key: bytes) -> None:
        # A failed load leaves a context inconsistent: try with another one first.
        load_cert_chain(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), certificate, key)
        load_cert_chain(self.context, certificate, key)


def has_certificate_files(folder: Path) -> bool:
    """Return whether the directory contains a certificate or a key."""
    return (folder / CERTIFICATE).exists() or (folder / KEY).exists()


class CertificateFiles:
    """Certificates that another program, such as cert-manager, writes; loaded when they change."""

    def __init__(self, folder: Path, serving: ServingCertificate) -> None:
        """Load `tls.crt` and `tls.key` from `folder`."""
        self._folder = folder
        self._serving = serving
        self._problem: str | None = f"{folder} has not been read yet"

    def missing(self) -> str | None:
        """Return why requests cannot be served, None if they can."""
        return None if self._serving.is_loaded else self._problem

    async def run(self) -> None:
        """Check the files until cancelled."""
        while True:
            problem = self._load_files()
            if problem is not None and problem != self._problem:
                _log.warning("Cannot load webhook certificate", error=problem)
            self._problem = problem
            await asyncio.sleep(_CHECK_SECONDS)

    def _load_files(self) -> str | None:
        try:
            pair = [(self._folder / name).read_bytes() for name in (CERTIFICATE, KEY)]
            self._serving.load(*pair)
        except (OSError, ValueError) as error:
            return f"--webhook-cert-dir={self._folder}: {error}"
        return None
