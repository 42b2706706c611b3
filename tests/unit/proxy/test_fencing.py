"""Which requests of a run are fenced, and the time limit that they are sent with."""

from __future__ import annotations

import pytest

from operator_runner.core.fencing import UNFENCED, WritePermit
from operator_runner.proxy.forwarding import is_session, limited_path, may_act
from operator_runner.proxy.request_info import RequestInfo

PODS = "/api/v1/namespaces/team/pods"


def _limited(path: str, seconds: float = 12.5) -> str:
    return limited_path(
        path, RequestInfo.parse(path.partition("?")[0]), WritePermit(UNFENCED, seconds)
    )


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "MERGE"])
@pytest.mark.parametrize("path", [PODS, f"{PODS}/web/status", "/other"])
def test_all_but_reads_are_fenced(method: str, path: str) -> None:
    """For all paths, and with methods that do not exist yet."""
    assert may_act(method, RequestInfo.parse(path), upgraded=False)


@pytest.mark.parametrize("subresource", ["exec", "attach", "portforward"])
def test_streams_that_act_on_a_pod_are_fenced(subresource: str) -> None:
    """A websocket begins with a GET."""
    assert may_act("GET", RequestInfo.parse(f"{PODS}/web/{subresource}"), upgraded=False)


def test_an_upgraded_request_is_fenced() -> None:
    """As exec by way of the kubelet, whose path is that of a node."""
    path = "/api/v1/nodes/node-1/proxy/exec/team/web/app"
    assert may_act("GET", RequestInfo.parse(path), upgraded=True)


@pytest.mark.parametrize(
    ("upgrade", "path", "watch", "expected"),
    [
        ("websocket", PODS, True, False),
        ("websocket", f"{PODS}/web", True, False),
        ("websocket", f"{PODS}/web/exec", True, True),
        ("SPDY/3.1", f"{PODS}/web/exec", False, True),
        ("websocket", "/api/v1/nodes/node-1/proxy/exec/team/web/app", True, True),
        ("websocket", f"{PODS}/web/proxy", True, True),
        ("websocket", "/other", True, True),
        ("", f"{PODS}/web/proxy", False, False),
    ],
)
def test_a_watch_by_websocket_is_not_a_session(
    upgrade: str, path: str, watch: bool, expected: bool
) -> None:
    """With `?watch=true` a kubelet runs commands all the same."""
    assert is_session(upgrade, RequestInfo.parse(path), watch=watch) is expected


@pytest.mark.parametrize("path", [PODS, f"{PODS}/web", f"{PODS}/web/log", "/version", "/apis"])
def test_reads_are_not_fenced(path: str) -> None:
    """A stale read changes nothing."""
    assert not may_act("GET", RequestInfo.parse(path), upgraded=False)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", "timeout=12.5s"),
        ("?fieldManager=a%2Fb&force=true", "fieldManager=a%2Fb&force=true&timeout=12.5s"),
        ("?timeout=60s&dryRun=All", "dryRun=All&timeout=12.5s"),
        ("?timeout=0s", "timeout=12.5s"),
        ("?timeout=&timeout=1h", "timeout=12.5s"),
        ("?time%6fut=1h", "timeout=12.5s"),
        ("?timeout=3s", "timeout=3s"),
        ("?timeout=later", "timeout=later"),
    ],
)
def test_a_write_gets_the_time_limit_of_its_permit(query: str, expected: str) -> None:
    """A shorter limit of the client is kept, and an invalid one is left to the API server."""
    assert _limited(PODS + query) == f"{PODS}?{expected}"


@pytest.mark.parametrize("subresource", ["exec", "attach", "portforward", "proxy"])
def test_streams_and_proxied_requests_get_no_parameter(subresource: str) -> None:
    """The API server does not limit them, and passes the parameter on to the application."""
    path = f"{PODS}/web/{subresource}?command=sh"
    assert _limited(path) == path


def test_without_a_permit_a_path_is_unchanged() -> None:
    """As it is without leader election."""
    assert limited_path(f"{PODS}?timeout=60s", RequestInfo.parse(PODS), None) == (
        f"{PODS}?timeout=60s"
    )
