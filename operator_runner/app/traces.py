"""Open the traces of an operator."""

from __future__ import annotations

import os
from contextlib import AbstractAsyncContextManager
from urllib.parse import urlsplit

from operator_runner import __version__
from operator_runner.kube.session import Connection
from operator_runner.proxy.request_info import RequestInfo
from operator_runner.telemetry.tracing.opening import open_traces
from operator_runner.telemetry.tracing.traces import Traces


def open_traces_of(connection: Connection) -> AbstractAsyncContextManager[Traces]:
    """Open the traces that the environment asks for, with the API server of a connection."""
    url = urlsplit(connection.server)
    server: dict[str, str | int] = {"server.address": url.hostname or ""}
    if url.port is not None:
        server["server.port"] = url.port
    defaults = {"service.name": "operator-runner", "service.version": __version__}
    if connection.namespace:
        defaults["k8s.namespace.name"] = connection.namespace
    return open_traces(os.environ, defaults, RequestInfo.parse, server)
