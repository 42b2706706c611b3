"""The client of the upgrade: which responses it counts as failures."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from demo.steady_client import SteadyClient
from tests.support.waiting import eventually


class Page(BaseHTTPRequestHandler):
    """Answers with the status that the test has set."""

    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(b"page")

    def log_request(self, code: object = "-", size: object = "-") -> None:
        """Leave the output to pytest."""


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    """Serve on a free port of loopback."""
    Page.status = 200
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_requests_are_counted_by_their_result(server: ThreadingHTTPServer) -> None:
    """Answers while all is well; errors of the server and of the network are failures."""
    with SteadyClient(f"http://127.0.0.1:{server.server_port}/") as client:
        eventually(lambda: client.fetched, lambda count: count > 1)
        assert client.failures == []
        Page.status = 503
        eventually(lambda: "HTTP 503" in client.failures)
        server.socket.close()
        eventually(lambda: [text for text in client.failures if text != "HTTP 503"])


def test_the_block_ends_the_client(server: ThreadingHTTPServer) -> None:
    """No thread of it is left."""
    before = threading.active_count()
    with SteadyClient(f"http://127.0.0.1:{server.server_port}/") as client:
        eventually(lambda: client.fetched)

    eventually(threading.active_count, lambda count: count <= before)
