"""The conversion webhook for the kinds with a `conversion` in watches.yaml.

It has a server, certificates and a registration.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

import structlog

from operator_runner.config.watches.expressions import evaluate
from operator_runner.conversion.certificates import (
    CertificateFiles,
    ServingCertificate,
    has_certificate_files,
)
from operator_runner.conversion.converter import Converter, Storage
from operator_runner.conversion.registrar import Registrar, Service, Target, Url, read_crd
from operator_runner.conversion.server import serve_conversions
from operator_runner.core.async_tasks import end_tasks
from operator_runner.core.errors import ApiError
from operator_runner.core.model import GVK, Json, Watch
from operator_runner.core.settings import WebhookSettings
from operator_runner.kube.api import Api
from operator_runner.kube.certificate_sources import (
    CertificateSource,
    InMemoryCertificates,
    SecretCertificates,
)
from operator_runner.kube.discovery import Discovery
from operator_runner.net.certificates import CertificateLifetimes
from operator_runner.net.sockets import reachable_host
from operator_runner.telemetry.metrics import Metrics
from operator_runner.telemetry.servers import HealthChecks

_UNREACHABLE = (
    "the API server runs on another machine; set --webhook-service, --webhook-host (an address of "
    "this machine that the API server can reach) or --webhook-cert-dir"
)

_log = structlog.get_logger(__name__)


class ConversionService:
    """Converts objects for the API server, on the leader and on all other replicas."""

    def __init__(
        self,
        settings: WebhookSettings,
        watches: Sequence[Watch],
        api: Api,
        discovery: Discovery,
        metrics: Metrics,
    ) -> None:
        """Serve nothing yet, and never if no watch has a conversion."""
        self._settings = settings
        self._kinds = {watch.gvk: watch.conversions for watch in watches if watch.conversions}
        self._converters = {
            (gvk.group, gvk.kind): Converter(gvk, conversions, evaluate)
            for gvk, conversions in self._kinds.items()
        }
        self._api = api
        self._discovery = discovery
        self._count = metrics.conversions.count
        self._serving = ServingCertificate()
        self._port = 0
        self._missing: Callable[[], str | None] = lambda: "the webhook has not started yet"

    async def serve(self, stack: AsyncExitStack, health: HealthChecks) -> None:
        """Serve until `stack` is closed; raises ConfigError if the port cannot be used."""
        if not self._kinds:
            return
        server = await serve_conversions(
            self._converters, self._settings.port, self._serving.context, self._count
        )
        stack.push_async_callback(server.stop)
        self._port = server.port
        task = asyncio.create_task(self._run(), name="conversion webhook")
        task.add_done_callback(_log_failure)
        stack.push_async_callback(end_tasks, [task])
        health.ready("conversion", self.missing)
        # Without this task certificates expire: the kubelet has to restart the process.
        health.live("conversion", lambda: "failed, see the log" if task.done() else None)

    def missing(self) -> str | None:
        """Return why requests cannot be served, for /readyz; None if they can."""
        return self._missing()

    async def _crd_name(self, gvk: GVK) -> str:
        resource = await self._discovery.resource(gvk)
        return f"{resource.plural}.{gvk.group}"

    async def _run(self) -> None:
        """Keep the certificates current until cancelled."""
        folder = self._settings.cert_dir
        if self._settings.cert_dir_given or has_certificate_files(folder):
            files = CertificateFiles(folder, self._serving)
            self._missing = files.missing
            await asyncio.gather(files.run(), self._follow_storage())
            return
        target = await self._target()
        if target is None:
            # Not a reason to be unready: the API server does not call this process.
            self._missing = lambda: None
            _log.warning("Conversion webhook is not registered", error=_UNREACHABLE)
            await asyncio.Event().wait()
            return
        registrar = Registrar(
            self._api,
            self._source(target),
            self._serving,
            self._kinds,
            check_interval=CertificateLifetimes().check_interval,
            crd_name=self._crd_name,
            on_crd=self._note_storage,
        )
        self._missing = registrar.missing
        await registrar.run(target)

    def _note_storage(self, gvk: GVK, crd: Json) -> None:
        self._converters[gvk.group, gvk.kind].storage = Storage.of(crd)

    async def _follow_storage(self) -> None:
        """Read the CRDs that another program registers. It is not required: see `Converter`."""
        while True:
            for gvk in self._kinds:
                try:
                    self._note_storage(gvk, await read_crd(self._api, await self._crd_name(gvk)))
                except ApiError as error:
                    self._converters[gvk.group, gvk.kind].storage = None
                    _log.debug("Cannot read the CRD of a conversion", error=str(error))
            await asyncio.sleep(CertificateLifetimes().check_interval.total_seconds())

    def _source(self, target: Target) -> CertificateSource:
        if isinstance(target, Url):
            return InMemoryCertificates(CertificateLifetimes())
        secret = f"{target.name}-certificate"
        return SecretCertificates(self._api, target.namespace, secret, CertificateLifetimes())

    async def _target(self) -> Target | None:
        settings = self._settings
        if settings.service is not None:
            namespace, name, port = settings.service
            return Service(namespace or self._api.connection.namespace, name, port)
        if settings.host:
            return Url(settings.host, self._port, replaces_service=True)
        host = await reachable_host(self._api.connection.server)
        return Url(host, self._port) if host else None


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        _log.error("Conversion webhook failed", exc_info=task.exception())
