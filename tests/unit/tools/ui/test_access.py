"""Requests that the server of the page denies."""

from __future__ import annotations

import pytest

from operator_runner.tools.ui.server import refusal

PORT, TOKEN = 4321, "s3cret"


@pytest.mark.parametrize("host", ["127.0.0.1:4321", "localhost:4321"])
@pytest.mark.parametrize("path", ["/s3cret/", "/s3cret/events", "/s3cret/runs/1"])
def test_a_get_request_with_the_token_is_permitted(host: str, path: str) -> None:
    """By both names of this machine."""
    assert refusal("GET", host, path, PORT, TOKEN) is None


@pytest.mark.parametrize(
    "host",
    ["", "127.0.0.1", "127.0.0.1:80", "evil.example.com:4321", "127.0.0.1.example.com:4321"],
)
def test_another_host_is_denied(host: str) -> None:
    """A name of others can resolve to 127.0.0.1; the token does not help it."""
    denied = refusal("GET", host, "/s3cret/", PORT, TOKEN)
    assert denied is not None
    assert denied[0] == 421


@pytest.mark.parametrize(
    "path", ["/", "/x/", "/s3cre/", "/s3cret0/", "/static/app.js", "//s3cret/", "/\udcff/"]
)
def test_a_request_without_the_token_is_denied(path: str) -> None:
    """Also one for a file, and one whose bytes are not text."""
    denied = refusal("GET", f"127.0.0.1:{PORT}", path, PORT, TOKEN)
    assert denied is not None
    assert denied[0] == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"])
def test_methods_other_than_get_are_denied(method: str) -> None:
    """Nothing in the page writes."""
    denied = refusal(method, f"127.0.0.1:{PORT}", "/s3cret/", PORT, TOKEN)
    assert denied is not None
    assert denied[0] == 405
