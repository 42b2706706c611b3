"""Load private keys into TLS contexts without a file that another process could open."""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import Iterator


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
