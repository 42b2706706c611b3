"""The conversion webhook of an operator, put together: server, certificates, registration."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

import structlog

from operator_runner.conversion.authority import Lives
from operator_runner.conversion.certificates import CertificateFiles, Serving, has_files
from operator_runner.conversion.registrar import Registrar, Source
from operator_runner.conversion.registration import Service, Target, Url
from operator_runner.conversion.review import Converters
from operator_runner.conversion.server import Answered, serve_conversions
from operator_runner.conversion.shared import Api, OwnCredentials, SharedCredentials
from operator_runner.core.model import GVK, Conversion
from operator_runner.core.settings import WebhookSettings
from operator_runner.net.local_address import reachable_host

_ELSEWHERE = (
    "the API server runs on another machine; give --webhook-service, --webhook-host (an address of "
    "this machine as that one sees it) or certificates in --webhook-cert-dir"
)

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ApiServer:
    """What is known of the API server: its URL, our namespace there, and how to ask it."""

    api: Api
    url: str
    namespace: str
    crd_name: Callable[[GVK], Awaitable[str]]


class Webhook:
    """Converts for the API server. Every replica does, leading or not."""

    def __init__(
        self,
        settings: WebhookSettings,
        converters: Converters,
        kinds: Mapping[GVK, Sequence[Conversion]],
        server: ApiServer,
        answered: Answered,
    ) -> None:
        """Take the converters and the kinds that they are for; `answered` counts."""
        self._settings = settings
        self._converters = converters
        self._kinds = kinds
        self._server = server
        self._answered = answered
        self._serving = Serving()
        self._port = 0
        self._missing: Callable[[], str | None] = lambda: "the webhook has not started yet"

    async def serve(self, stack: AsyncExitStack) -> None:
        """Listen until `stack` is closed; raises ConfigError if the port cannot be had."""
        server = await serve_conversions(
            self._converters, self._settings.port, self._serving.context, self._answered
        )
        stack.push_async_callback(server.stop)
        self._port = server.port

    def missing(self) -> str | None:
        """Return why the API server cannot be answered, for /readyz; None if it can."""
        return self._missing()

    async def run(self) -> None:
        """Look after the certificates until cancelled."""
        folder = self._settings.cert_dir
        if self._settings.cert_dir_given or has_files(folder):
            files = CertificateFiles(folder, self._serving)
            self._missing = files.missing
            await files.run()
            return
        target = await self._target()
        if target is None:
            # Not a reason to be unready: nobody waits for this process to convert.
            self._missing = _nothing
            _log.warning("Conversions do not come here", reason=_ELSEWHERE)
            await asyncio.Event().wait()
            return
        registrar = Registrar(
            self._server.api,
            self._source(target),
            self._serving,
            self._kinds,
            look=Lives().look,
            crd_name=self._server.crd_name,
        )
        self._missing = registrar.missing
        await registrar.run(target)

    def _source(self, target: Target) -> Source:
        if isinstance(target, Url):
            return OwnCredentials(Lives())
        secret = f"{target.name}-certificate"
        return SharedCredentials(self._server.api, target.namespace, secret, Lives())

    async def _target(self) -> Target | None:
        settings = self._settings
        if settings.service is not None:
            namespace, name, port = settings.service
            return Service(namespace or self._server.namespace, name, port)
        if settings.host:
            return Url(settings.host, self._port, taken=True)
        host = await reachable_host(self._server.url)
        return Url(host, self._port) if host else None


def _nothing() -> None:
    return None
