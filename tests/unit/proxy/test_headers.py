"""Which headers pass."""

from __future__ import annotations

import pytest
from multidict import CIMultiDict

from operator_runner.proxy.bodies import request_headers, response_headers, upgrade_of


def test_the_token_of_the_run_is_not_forwarded() -> None:
    """The run's token, the host and headers of the connection are not forwarded."""
    sent = {
        "Authorization": "Bearer secret",
        "Host": "127.0.0.1:8888",
        "Connection": "keep-alive, X-Private",
        "X-Private": "1",
        "Transfer-Encoding": "chunked",
        "Expect": "100-continue",
        "User-Agent": "kubectl",
        "Impersonate-User": "jane",
    }
    assert dict(request_headers(sent, readable=False)) == {
        "User-Agent": "kubectl",
        "Impersonate-User": "jane",
    }


def test_answers_keep_all_warnings() -> None:
    """Headers that come more than once stay apart; the encoding is not touched."""
    got = CIMultiDict(
        [
            ("Warning", '299 - "one"'),
            ("Warning", '299 - "two"'),
            ("Content-Encoding", "gzip"),
            ("Keep-Alive", "timeout=5"),
        ]
    )
    passed = response_headers(got)
    assert passed.getall("Warning") == ['299 - "one"', '299 - "two"']
    assert passed["Content-Encoding"] == "gzip"
    assert "Keep-Alive" not in passed


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("application/vnd.kubernetes.protobuf,application/json", "application/json"),
        ("application/vnd.kubernetes.protobuf, */*", "*/*"),
        ("application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf"),
        ("application/cbor;q=1,application/json;q=0.9", "application/json;q=0.9"),
        ("application/json;as=Table;v=v1,application/json", None),
    ],
)
def test_json_if_the_client_accepts_it(accept: str, expected: str | None) -> None:
    """Responses to decode are requested in JSON, if the client accepts it."""
    passed = request_headers({"Accept": accept, "Accept-Encoding": "gzip"}, readable=True)
    assert passed["Accept"].replace(", ", ",") == (expected or accept)
    assert "Accept-Encoding" not in passed


def test_streams_keep_their_headers() -> None:
    """Where nothing is looked at, the client's wishes pass unchanged."""
    sent = {"Accept": "application/vnd.kubernetes.protobuf", "Accept-Encoding": "gzip"}
    assert dict(request_headers(sent, readable=False)) == sent


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"Connection": "Upgrade", "Upgrade": "SPDY/3.1"}, "SPDY/3.1"),
        ({"connection": "keep-alive, upgrade", "upgrade": "websocket"}, "websocket"),
        ({"Upgrade": "h2c"}, ""),
        ({}, ""),
    ],
)
def test_upgrades_need_the_connection_header(headers: dict[str, str], expected: str) -> None:
    """Only a request that names the upgrade in Connection too is an upgrade."""
    assert upgrade_of(CIMultiDict(headers)) == expected
