"""Load private keys of TLS servers without a file that another process could open by its path."""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import Iterator


def load_key(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Have a context show this certificate (PEM, with its chain). Raises ssl.SSLError, OSError.

    The ssl module reads files only; these are in memory and end with the call.
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
