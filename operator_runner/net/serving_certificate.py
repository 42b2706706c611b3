"""Self-signed serving certificates of the operator's own servers, created at each start.

The proxy needs TLS because client-go, and so kubectl and helm, sends no token over plain HTTP. The
metrics server needs it to protect the tokens of scrapers. The private key is only in memory, and is
loaded without a file that another process could open.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import ssl
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from operator_runner.net import x509


def load_cert_chain(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load a certificate (PEM, with its chain) and its key. Raises ssl.SSLError and OSError.

    The ssl module only reads files: these are in memory and exist during the call only.
    """
    with _memory_file(certificate) as first, _memory_file(key) as second:
        context.load_cert_chain(first, second)


@contextlib.contextmanager
def _memory_file(content: bytes) -> Iterator[str]:
    descriptor = os.memfd_create("tls")
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


_VALIDITY = dt.timedelta(days=3650)


def unverified_context(name: str, names: Sequence[str]) -> ssl.SSLContext:
    """Return a TLS context whose certificate clients do not verify, as in controller-runtime."""
    with tempfile.TemporaryDirectory() as folder:
        return server_context(Path(folder) / "tls.crt", names, name)


def server_context(
    certificate: Path, names: Sequence[str], name: str = "operator-runner proxy"
) -> ssl.SSLContext:
    """Return a TLS context for DNS names and IP addresses; write its certificate as PEM.

    `name` is the common name. The certificate is self-signed, so the file is the CA bundle for
    clients.
    """
    key = x509.new_key()
    now = dt.datetime.now(dt.UTC)
    pem = x509.certificate_pem(
        x509.issue_ca(key, x509.subject_name(name), now=now, lifetime=_VALIDITY, names=names)
    )
    certificate.write_bytes(pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_cert_chain(context, pem, x509.key_pem(key))
    return context
