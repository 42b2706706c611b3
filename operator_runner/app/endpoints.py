"""Open the ports of probes, metrics and the operator API, and the traces of an operator."""

from __future__ import annotations

import os
import secrets
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from urllib.parse import urlsplit

import structlog

from operator_runner import __version__
from operator_runner.ansible.run_spec import METRIC_ADDRESS
from operator_runner.core.settings import Settings
from operator_runner.kube.api import Api
from operator_runner.kube.authorization import Reviews, require_permission
from operator_runner.kube.session import Connection
from operator_runner.net.certificates import unverified_context
from operator_runner.proxy.request_info import RequestInfo
from operator_runner.telemetry.metrics import Metrics
from operator_runner.telemetry.runs.access import LocalAccess, published, url_of
from operator_runner.telemetry.runs.api import RunsApi
from operator_runner.telemetry.servers import (
    HealthChecks,
    serve_metrics,
    serve_probes,
    serve_user_metrics,
)
from operator_runner.telemetry.tracing.opening import open_traces
from operator_runner.telemetry.tracing.run_spans import Traces


def open_traces_of(connection: Connection) -> AbstractAsyncContextManager[Traces | None]:
    """Open the traces that the environment asks for; None if it asks for none."""
    url = urlsplit(connection.server)
    server: dict[str, str | int] = {"server.address": url.hostname or ""}
    if url.port is not None:
        server["server.port"] = url.port
    defaults = {"service.name": "operator-runner", "service.version": __version__}
    if connection.namespace:
        defaults["k8s.namespace.name"] = connection.namespace
    return open_traces(os.environ, defaults, RequestInfo.parse, server)


_log = structlog.get_logger(__name__)


async def open_probes(settings: Settings, health: HealthChecks, stack: AsyncExitStack) -> None:
    """Open the port of the probes; it is closed when `stack` is.

    Raises ConfigError for an address that cannot be bound.
    """
    if (at := settings.probes) is not None:
        probes = await serve_probes(health, at.host, at.port, "--health-probe-bind-address")
        stack.push_async_callback(probes.stop)


async def open_metrics(
    settings: Settings,
    metrics: Metrics,
    api: Api,
    stack: AsyncExitStack,
    *,
    runs: RunsApi,
    work_dir: Path,
) -> None:
    """Open the port of metrics; it is closed when `stack` is.

    Address and key of the API are in `work_dir` until then. Raises ConfigError for an address that
    cannot be bound.
    """
    if (at := settings.metrics) is not None:
        key = secrets.token_urlsafe(32)
        reviews = Reviews(api) if settings.metrics_require_rbac else None
        context = None
        if settings.metrics_secure:
            context = unverified_context("operator-runner metrics", ["localhost"])
        server = await serve_metrics(
            metrics,
            at.host,
            at.port,
            "--metrics-bind-address",
            require_permission(reviews, api_key=key),
            context=context,
            runs=runs,
        )
        stack.push_async_callback(server.stop)
        url = url_of(at.host, server.port, secure=settings.metrics_secure)
        try:
            stack.enter_context(published(work_dir, LocalAccess(url, key, api.connection.server)))
        except OSError as error:
            _log.warning("Cannot write the access file of the HTTP API", error=str(error))


async def open_role_metrics(
    settings: Settings, metrics: Metrics, stack: AsyncExitStack
) -> dict[str, str]:
    """Open the port of metrics that roles send; it is closed when `stack` is.

    Return the variables with its address for runs, none if the settings have the address.
    """
    if (at := settings.user_metrics) is None:
        return {}
    taker = await serve_user_metrics(metrics.user, at.host, at.port)
    if taker is None:
        return {}
    stack.push_async_callback(taker.stop)
    return {} if at.port else {METRIC_ADDRESS: f"http://{at.host}:{taker.port}/metrics"}
