"""Ports and a work dir that nobody uses, for an operator on a developer's machine."""

from __future__ import annotations

import fcntl
import itertools
import os
import socket
from collections.abc import Container, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import structlog

from operator_runner.ansible.rundir import LOCK_FILE, resolve_work_dir
from operator_runner.config.flags.options import METRICS_ADDRESS
from operator_runner.core.settings import Address

_log = structlog.get_logger(__name__)
_ADDRESSES = ("metrics_bind_address", "health_probe_bind_address", "user_metrics_bind_address")
_PORTS = ("proxy_port", "webhook_port")


def free_places(options: Mapping[str, Any], unset: Container[str]) -> dict[str, Any]:
    """Return other values of the options whose default port or work dir is in use.

    `unset` are the names of options that the user has not set. In a Pod nothing is replaced,
    because probes and Services name the ports, and it has a file system of its own.
    """
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return {}
    found: dict[str, Any] = {}
    for name in _ADDRESSES:
        if name not in unset or (name == "metrics_bind_address" and options["metrics_addr"]):
            continue
        address = Address.parse(options[name] or METRICS_ADDRESS)
        if address is not None:
            free = _free_port(address.host, address.port)
            if free != address.port:
                found[name] = f"{address.host}:{free}"
    for name in _PORTS:
        port = options[name]
        if name in unset and (free := _free_port("localhost", port)) != port:
            found[name] = free
    if "work_dir" in unset and _is_locked(base := resolve_work_dir(options["work_dir"])):
        numbered = (base.with_name(f"{base.name}-{number}") for number in itertools.count(2))
        found["work_dir"] = next(each for each in numbered if not _is_locked(each))
    for name, value in found.items():
        flag = f"--{name.replace('_', '-')}"
        _log.info("The default is in use: using another one", flag=f"{flag}={value}")
    return found


def _free_port(host: str, port: int) -> int:
    """Return the port if it is free, else another one."""
    for wanted in (port, 0):
        with closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, wanted))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    return port


def _is_locked(work_dir: Path) -> bool:
    try:
        descriptor = os.open(work_dir / LOCK_FILE, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
