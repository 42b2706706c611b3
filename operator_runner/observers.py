"""Opens the ports by which others look at the operator: probes, metrics, metrics of roles."""

from __future__ import annotations

from contextlib import AsyncExitStack

from operator_runner.kube.api import Api
from operator_runner.kube.reviews import protection_of
from operator_runner.observe.metrics import Metrics
from operator_runner.observe.probes import Health
from operator_runner.observe.servers import serve_metrics, serve_probes, serve_user_metrics
from operator_runner.settings import Settings


async def serve_observers(
    settings: Settings, health: Health, metrics: Metrics, api: Api, stack: AsyncExitStack
) -> None:
    """Listen until `stack` is closed; raises ConfigError for an address that cannot be had."""
    if (at := settings.probes) is not None:
        probes = await serve_probes(health, at.host, at.port, "--health-probe-bind-address")
        stack.push_async_callback(probes.stop)
    if (at := settings.metrics) is not None:
        protection = protection_of(
            api, secure=settings.metrics_secure, require_rbac=settings.metrics_require_rbac
        )
        server = await serve_metrics(
            metrics, at.host, at.port, "--metrics-bind-address", protection
        )
        stack.push_async_callback(server.stop)
    if (at := settings.user_metrics) is not None:
        taker = await serve_user_metrics(metrics.user, at.host, at.port)
        if taker is not None:
            stack.push_async_callback(taker.stop)
