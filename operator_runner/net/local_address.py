"""Whether the API server runs on this machine, and can so reach a process of it."""

from __future__ import annotations

import asyncio
import socket
from urllib.parse import urlsplit


async def reachable_host(server: str) -> str | None:
    """Return the host under which the API server at a URL finds this process, None if it cannot.

    An API server that listens on an address of this machine reaches what listens on it too.
    """
    host = urlsplit(server).hostname or ""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_DGRAM)
    except OSError:
        return None
    ours = all(_is_ours(family, str(address[0])) for family, _, _, _, address in found)
    return host if ours else None


def _is_ours(family: int, address: str) -> bool:
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True
