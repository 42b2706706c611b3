"""The conversion webhook on the real parts, for the kinds that have a `conversion`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack

import structlog

from operator_runner.config.watches.expressions import evaluate
from operator_runner.conversion.converter import Converter
from operator_runner.conversion.webhook import ApiServer, Webhook
from operator_runner.core.async_tasks import end_tasks
from operator_runner.core.model import GVK, Watch
from operator_runner.core.settings import WebhookSettings
from operator_runner.kube.api import Api
from operator_runner.kube.discovery import Discovery
from operator_runner.telemetry.metrics import Metrics
from operator_runner.telemetry.probes import Health

_log = structlog.get_logger(__name__)


class Conversions:
    """Serves conversions as long as the process lives: leading, waiting or shutting down."""

    def __init__(
        self,
        settings: WebhookSettings,
        watches: Sequence[Watch],
        api: Api,
        discovery: Discovery,
        metrics: Metrics,
    ) -> None:
        """Do nothing yet, nor later if no watch has a conversion."""
        converting = [watch for watch in watches if watch.conversions]
        converters = {
            (watch.gvk.group, watch.gvk.kind): Converter(watch.gvk, watch.conversions, evaluate)
            for watch in converting
        }
        connection = api.connection
        self._discovery = discovery
        server = ApiServer(api, connection.server, connection.namespace, self._crd_name)
        kinds = {watch.gvk: watch.conversions for watch in converting}
        count = metrics.conversions.count
        self._webhook = Webhook(settings, converters, kinds, server, count) if kinds else None

    async def serve(self, stack: AsyncExitStack, health: Health) -> None:
        """Serve until `stack` is closed; raises ConfigError if the port cannot be had."""
        if self._webhook is None:
            return
        await self._webhook.serve(stack)
        task = asyncio.create_task(self._webhook.run(), name="conversion webhook")
        task.add_done_callback(_tell)
        stack.push_async_callback(end_tasks, [task])
        health.ready("conversion", self._webhook.missing)
        # Without it nobody renews the certificates: a new process does.
        health.live("conversion", lambda: "it has ended, see the log" if task.done() else None)

    async def _crd_name(self, gvk: GVK) -> str:
        resource = await self._discovery.resource(gvk)
        return f"{resource.plural}.{gvk.group}"


def _tell(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        _log.error("The conversion webhook has ended", exc_info=task.exception())
