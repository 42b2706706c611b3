"""Decide which requests the page's server answers. Pure."""

from __future__ import annotations

import hmac
from collections.abc import Mapping

HEADERS: Mapping[str, str] = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "object-src 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # The path has the token.
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Headers of every response."""
_OWN_NAMES = ("127.0.0.1", "localhost")


def refusal(method: str, host: str, path: str, port: int, token: str) -> tuple[int, str] | None:
    """Return status and message for a request that is denied, None for one that is not.

    `host` is its header, `port` that of the server. The first segment of `path` must be `token`.
    """
    if host not in {f"{name}:{port}" for name in _OWN_NAMES}:
        # Another name that resolves to this machine: DNS rebinding.
        return 421, f"invalid Host: open http://127.0.0.1:{port} with the path that was printed"
    if method != "GET":
        return 405, "the page is read-only: use GET"
    given = path.split("/")[1].encode(errors="surrogateescape")
    if not hmac.compare_digest(given, token.encode()):
        return 403, "invalid token: open the URL that `operator-runner ui` has printed"
    return None
