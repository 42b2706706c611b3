"""Fencing of requests: which ones need a permit, and how long the API server may take. Pure.

See docs/adr/0034-fencing.md.
"""

from __future__ import annotations

from datetime import timedelta
from urllib.parse import unquote_plus

from operator_runner.core.durations import parse_duration
from operator_runner.core.errors import Fenced
from operator_runner.core.fencing import Fence, WritePermit
from operator_runner.proxy.ownership_enforcement import is_write
from operator_runner.proxy.request_info import RequestInfo
from operator_runner.proxy.status_errors import StatusError

_READS = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods of requests that change nothing, unless they act on a Pod or are upgraded."""

_LONG_RUNNING = frozenset({"attach", "exec", "log", "portforward", "proxy"})
"""Subresources whose requests the API server does not limit."""


def is_session(upgrade: str, info: RequestInfo | None, *, watch: bool) -> bool:
    """Return whether a request is a stream in both directions, such as exec.

    `upgrade` is the protocol that it asks for. `watch` is that of the query, which makes a
    websocket of objects a read. Behind a subresource, an application or a kubelet ignores it.
    """
    is_watch = watch and info is not None and not info.subresource
    return bool(upgrade) and not is_watch


def may_act(method: str, info: RequestInfo | None, *, upgraded: bool) -> bool:
    """Return whether a request may change something; `upgraded` ones are streams, such as exec."""
    return method not in _READS or upgraded or (info is not None and is_write(method, info))


def permit(fence: Fence) -> WritePermit | None:
    """Return the permit for a request that is about to be sent. Raises StatusError."""
    try:
        return fence.permit()
    except Fenced as refusal:
        raise refused(refusal) from refusal


def refused(refusal: Fenced) -> StatusError:
    """Return the response to a request that was not permitted."""
    # Not 409, which kubernetes.core takes as the success of a POST.
    return StatusError(403, str(refusal))


def limited_path(path: str, info: RequestInfo | None, permit: WritePermit | None) -> str:
    """Return a path and query (percent-encoded) with the time limit of the permit.

    A shorter limit of the client is kept; the API server rejects an invalid one.
    """
    if permit is None or info is None or info.subresource in _LONG_RUNNING:
        return path
    path, _, query = path.partition("?")
    others, requested = [], ""
    for part in query.split("&"):
        name, _, value = part.partition("=")
        if unquote_plus(name) != "timeout":
            others.append(part)
        else:
            requested = requested or unquote_plus(value)
    timeout = requested if _is_kept(requested, permit.limit) else permit.timeout
    return f"{path}?{'&'.join([*filter(None, others), f'timeout={timeout}'])}"


def _is_kept(requested: str, limit: float) -> bool:
    if not requested:
        return False
    try:
        duration = parse_duration(requested)
    except ValueError:
        return True
    # Zero means without a limit.
    return timedelta(0) < duration <= timedelta(seconds=limit)
