"""Create the conversion webhook for the kinds with a `conversion` in watches.yaml."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack

import structlog

from operator_runner.config.watches.expressions import evaluate
from operator_runner.conversion.converter import Converter
from operator_runner.conversion.webhook import Webhook
from operator_runner.core.async_tasks import end_tasks
from operator_runner.core.model import GVK, Watch
from operator_runner.core.settings import WebhookSettings
from operator_runner.kube.api import Api
from operator_runner.kube.discovery import Discovery
from operator_runner.telemetry.metrics import Metrics
from operator_runner.telemetry.probes import HealthChecks

_log = structlog.get_logger(__name__)


class ConversionService:
    """Serves conversions until the process ends, on the leader and on all other replicas."""

    def __init__(
        self,
        settings: WebhookSettings,
        watches: Sequence[Watch],
        api: Api,
        discovery: Discovery,
        metrics: Metrics,
    ) -> None:
        """Serve nothing yet, and never if no watch has a conversion."""
        converting = [watch for watch in watches if watch.conversions]
        converters = {
            (watch.gvk.group, watch.gvk.kind): Converter(watch.gvk, watch.conversions, evaluate)
            for watch in converting
        }
        self._discovery = discovery
        kinds = {watch.gvk: watch.conversions for watch in converting}
        count = metrics.conversions.count
        self._webhook = (
            Webhook(settings, converters, kinds, api, crd_name=self._crd_name, on_review=count)
            if kinds
            else None
        )

    async def serve(self, stack: AsyncExitStack, health: HealthChecks) -> None:
        """Serve until `stack` is closed; raises ConfigError if the port cannot be used."""
        if self._webhook is None:
            return
        await self._webhook.serve(stack)
        task = asyncio.create_task(self._webhook.run(), name="conversion webhook")
        task.add_done_callback(_log_failure)
        stack.push_async_callback(end_tasks, [task])
        health.ready("conversion", self._webhook.missing)
        # Without this task certificates expire: the kubelet has to restart the process.
        health.live("conversion", lambda: "failed, see the log" if task.done() else None)

    async def _crd_name(self, gvk: GVK) -> str:
        resource = await self._discovery.resource(gvk)
        return f"{resource.plural}.{gvk.group}"


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        _log.error("Conversion webhook failed", exc_info=task.exception())
