"""TCP ports for the parts of a cluster."""

from __future__ import annotations

import random
import socket

from operator_runner.devcluster.errors import NoFreePort, PortTaken

# Below the range from which the kernel serves outgoing connections, so that none of them can
# take a port between choosing and listening.
_RANGE = range(12_000, 32_000)


def free(address: str, count: int) -> list[int]:
    """Return `count` free ports on `address`; no other process gets them by this function.

    Raises NoFreePort. Programs that listen with SO_REUSEADDR, as those in Go do, can use them.
    """
    first = random.randrange(len(_RANGE))  # noqa: S311 - no secret
    found: list[int] = []
    for step in range(len(_RANGE)):
        port = _RANGE[(first + step) % len(_RANGE)]
        if _reserve(address, port):
            found.append(port)
        if len(found) == count:
            return found
    raise NoFreePort(f"{address} has no {count} free ports in {_RANGE.start}-{_RANGE.stop - 1}")


def _reserve(address: str, port: int) -> bool:
    """Bind the port without listening; return whether that was possible."""
    reservation = socket.socket()
    try:
        reservation.bind((address, port))
    except OSError:
        reservation.close()
        return False
    # Only from now on, so that the program may bind it too and a second reservation may not.
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Kept until this process ends, because the program listens at an unknown time.
    reservation.detach()
    return True


def require(address: str, port: int) -> int:
    """Return `port` if it is free, else raise PortTaken."""
    if not _is_free(address, port):
        raise PortTaken(
            f"port {port} of {address} is taken by another program",
            hint="Give another one with --port, or leave --port out to get a free one.",
        )
    return port


def _is_free(address: str, port: int) -> bool:
    with socket.socket() as probe:
        # As the Go programs listen: a closing connection of an earlier server does not matter.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True
