"""Find out whether the API server runs on this machine, and so can connect to this process."""

from __future__ import annotations

import asyncio
import socket
from urllib.parse import urlsplit


async def reachable_host(server: str) -> str | None:
    """Return the host at which the API server at a URL can connect to this process, else None.

    That is the host of the URL if all of its addresses are local.
    """
    host = urlsplit(server).hostname or ""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_DGRAM)
    except OSError:
        return None
    is_local = all(_is_local(family, str(address[0])) for family, _, _, _, address in found)
    return host if is_local else None


def _is_local(family: int, address: str) -> bool:
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True
