"""Log at the start what the operator watches, runs and serves."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from operator_runner.core.model import RunContent, Watch
from operator_runner.core.settings import Address, Settings

_log = structlog.get_logger(__name__)


def announce_watches(settings: Settings, watches: Sequence[Watch], server: str) -> None:
    """Log the API server by its URL, and each watch with its role or playbook."""
    _log.info("Starting", api_server=server, namespaces=", ".join(settings.namespaces) or "all")
    for watch in watches:
        cleanups = {"finalizer": watch.finalizer.name} if watch.finalizer else {}
        if watch.deselection is not None:
            cleanups["deselection"] = watch.deselection.annotation
        _log.info("Watching resource", gvk=str(watch.gvk), **_content(watch.content), **cleanups)
        if watch.prune is not None and not settings.inject_owner_ref:
            _log.warning(
                "prune has no effect: objects have no owner",
                gvk=str(watch.gvk),
                hint="remove --inject-owner-ref=false",
            )
    if settings.reload:
        _log.info("Reloading edited roles, playbooks and watches", file=str(settings.watches_file))


def announce_servers(settings: Settings) -> None:
    """Log the URLs of metrics and probes."""
    if settings.metrics is not None:
        scheme = "https" if settings.metrics_secure else "http"
        _log.info("Serving metrics", url=f"{scheme}://{_authority(settings.metrics)}/metrics")
    if settings.probes is not None:
        _log.info("Serving probes", url=f"http://{_authority(settings.probes)}/readyz")


def _content(content: RunContent) -> dict[str, str]:
    return {"playbook" if content.role is None else "role": str(content.path)}


def _authority(address: Address) -> str:
    host = address.host or "localhost"
    return f"[{host}]:{address.port}" if ":" in host else f"{host}:{address.port}"
