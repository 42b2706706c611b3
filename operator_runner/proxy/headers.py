"""Headers of requests and responses that the proxy forwards. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import hdrs
from multidict import CIMultiDict

from operator_runner.proxy.bodies import PROTOBUF, media_type

_HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""RFC 9110, 7.6.1: they concern one connection, not the message."""

_TERMINATED_HERE = frozenset({"authorization", "host", "expect"})
"""Request headers that the proxy handles itself. The run's token must never leave this process."""

_BINARY = frozenset({PROTOBUF, "application/cbor"})


def request_headers(headers: Mapping[str, str], *, readable: bool) -> CIMultiDict[str]:
    """Return the headers of the forwarded request.

    `readable` requests a response that can be decoded here, among those that the client accepts:
    JSON in place of a binary encoding, and not compressed.
    """
    passed = _end_to_end(headers)
    for name in _TERMINATED_HERE:
        passed.popall(name, None)
    if readable:
        passed.popall(hdrs.ACCEPT_ENCODING, None)
        if hdrs.ACCEPT in passed:
            passed[hdrs.ACCEPT] = _readable(",".join(passed.getall(hdrs.ACCEPT)))
    return passed


def response_headers(headers: Mapping[str, str]) -> CIMultiDict[str]:
    """Return the headers of the forwarded response."""
    return _end_to_end(headers)


def upgrade_of(headers: Mapping[str, str]) -> str:
    """Return the protocol to upgrade the connection to, such as SPDY/3.1; else empty."""
    tokens = _tokens(headers.get(hdrs.CONNECTION, ""))
    return headers.get(hdrs.UPGRADE, "") if "upgrade" in tokens else ""


def _end_to_end(headers: Mapping[str, str]) -> CIMultiDict[str]:
    passed = CIMultiDict(headers)
    dropped = _HOP_BY_HOP | _tokens(",".join(passed.getall(hdrs.CONNECTION, [])))
    for name in dropped:
        passed.popall(name, None)
    return passed


def _tokens(value: str) -> frozenset[str]:
    return frozenset(token.strip().lower() for token in value.split(",") if token.strip())


def _readable(accept: str) -> str:
    ranges = [item.strip() for item in accept.split(",")]
    kept = [item for item in ranges if media_type(item) not in _BINARY]
    json = any(media_type(item) in {"application/json", "*/*"} for item in kept)
    return ", ".join(kept if json else ranges)
