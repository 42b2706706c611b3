"""A collector of OpenTelemetry on loopback, which a test can stop answering."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@dataclass
class Collector:
    """What a collector has received; `status` is that of its answers."""

    port: int = 0
    status: int = 200
    requests: list[ExportTraceServiceRequest] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    held: threading.Event = field(default_factory=threading.Event)
    """Set when a request waits for its answer."""
    answering: threading.Event = field(default_factory=threading.Event)
    """While it is clear, no request is answered."""

    @property
    def environment(self) -> dict[str, str]:
        """Variables that send traces here, soon after they end."""
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self.port}",
            "OTEL_BSP_SCHEDULE_DELAY": "50",
            "NO_PROXY": "127.0.0.1",
        }

    @property
    def resource(self) -> dict[str, str]:
        """Attributes of the process that sent the first spans."""
        return texts(self.requests[0].resource_spans[0].resource.attributes)

    def spans(self) -> list[Span]:
        """Return all spans, in the order of their ends."""
        return [
            span
            for request in [*self.requests]
            for of_process in request.resource_spans
            for of_library in of_process.scope_spans
            for span in of_library.spans
        ]


def texts(attributes: object) -> dict[str, str]:
    """Return the attributes that are texts."""
    found: dict[str, str] = {}
    for each in attributes:  # type: ignore[attr-defined]
        assert isinstance(each, KeyValue)
        found[each.key] = each.value.string_value
    return found


@contextmanager
def collector() -> Iterator[Collector]:
    """Receive OTLP over HTTP as long as the block lasts."""
    received = Collector()
    received.answering.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.held.set()
            received.answering.wait()
            received.headers.append({name.lower(): text for name, text in self.headers.items()})
            if received.status == 200:
                received.requests.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(received.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Write nothing to stderr."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    received.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield received
    finally:
        received.answering.set()
        server.shutdown()
        thread.join()
        server.server_close()
