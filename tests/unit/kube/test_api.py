"""Decisions about requests to the Kubernetes API."""

from __future__ import annotations

import pytest

from operator_runner.kube.api import is_watch


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, False),
        ({"watch": "false"}, False),
        ({"watch": "False"}, False),
        ({"watch": "0"}, False),
        ({"watch": "true"}, True),
        ({"watch": "1"}, True),
        ({"watch": ""}, True),
        ({"watch": "no"}, True),
        ({"resourceVersion": "1", "watch": "true"}, True),
        ({"Watch": "true"}, False),
    ],
)
def test_a_query_requests_a_watch_as_in_the_api_server(
    query: dict[str, str], expected: bool
) -> None:
    """The API server's conversion of query parameters accepts all but `0` and `false`."""
    assert is_watch(query) is expected
