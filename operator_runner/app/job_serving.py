"""Runs as Jobs: their launcher and their port, which the leader opens and closes before it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

import structlog

from operator_runner.ansible.jobs.client import JobClient
from operator_runner.ansible.jobs.launcher import JobLauncher
from operator_runner.core.errors import ApiError, ConfigError, Conflict, Unavailable
from operator_runner.core.fencing import Fences
from operator_runner.core.model import Cause, ObjectRef, Trigger, Watch
from operator_runner.core.settings import Address, JobSettings, Settings
from operator_runner.kube.api import Api
from operator_runner.kube.certificate_sources import SecretCertificates
from operator_runner.net.certificate_authority import CertificateLifetimes
from operator_runner.proxy.job_server import JobServer
from operator_runner.proxy.server import Proxy

_RETRY_SECONDS = 2.0

_log = structlog.get_logger(__name__)


class JobPort(Protocol):
    """The server for the Pods of Jobs; see `proxy.job_server.JobServer`."""

    async def start(self) -> None:
        """Listen. Raises ApiError and ConfigError."""

    async def renew(self) -> None:
        """Renew the certificates until cancelled."""

    async def stop(self) -> None:
        """Close the server and its connections."""


class AdoptingLauncher(Protocol):
    """The launcher of Jobs; see `ansible.jobs.launcher.JobLauncher`."""

    @property
    def adoptable(self) -> Sequence[ObjectRef]:
        """Possible resources of expected Jobs."""

    async def expect_adoptions(self, watches: Sequence[Watch]) -> None:
        """Make the server expect the Jobs of earlier runs. Raises ApiError."""

    def leave(self) -> None:
        """Do not delete the Jobs of cancelled runs."""


class JobServing:
    """Serves Jobs as long as the operator may."""

    def __init__(
        self, server: JobPort, launcher: AdoptingLauncher, watches: Sequence[Watch]
    ) -> None:
        """Open nothing yet."""
        self._server = server
        self._launcher = launcher
        self._watches = watches
        self._opened = asyncio.Event()

    async def run(self) -> None:
        """Open the port and renew its certificates, until cancelled. Raises ConfigError."""
        await self.open()
        await self._server.renew()

    async def open(self) -> None:
        """Open the port as soon as the API server permits it. Raises ConfigError.

        Only the leader may: other replicas do not have the tokens of runs.
        """
        while True:
            try:
                await self._launcher.expect_adoptions(self._watches)
                await self._server.start()
            except (Unavailable, Conflict) as error:
                _log.warning(
                    "Cannot open the port for Jobs; retrying",
                    error=str(error),
                    seconds=_RETRY_SECONDS,
                )
            except ApiError as error:
                raise ConfigError(
                    f"port for Jobs: {error}; check the permissions with `operator-runner rbac`"
                ) from error
            else:
                self._opened.set()
                return
            await asyncio.sleep(_RETRY_SECONDS)

    async def adoptable(self) -> Sequence[ObjectRef]:
        """Wait until the port is open; return the resources to reconcile before all others."""
        await self._opened.wait()
        return self._launcher.adoptable

    async def leave(self) -> None:
        """Leave running Jobs to the next operator; their Pods wait until it serves the port."""
        self._launcher.leave()
        await self._server.stop()


def job_launcher_of(
    settings: Settings,
    api: Api,
    namespace: str,
    *,
    proxy: Proxy,
    fences: Fences,
    enqueue: Callable[[ObjectRef, Cause], None],
) -> tuple[JobLauncher, JobServer]:
    """Return the launcher of Jobs and the server for their Pods. `namespace` is the operator's."""
    host, certificate_namespace, secret = _names_for_jobs(settings.jobs, namespace)
    source = SecretCertificates(api, certificate_namespace, secret, CertificateLifetimes())
    server = JobServer(proxy, source, settings.jobs.port, host)

    def client(of_resource: str) -> JobClient:
        return JobClient(api, of_resource or namespace)

    def on_adopted(ref: ObjectRef) -> None:
        enqueue(ref, Cause(Trigger.START, "end of an adopted run"))

    launcher = JobLauncher(server, client, settings.ansible, fences, on_adopted=on_adopted)
    return launcher, server


def _names_for_jobs(settings: JobSettings, own_namespace: str) -> tuple[Address, str, str]:
    """Return where Pods connect to, and namespace and name of the Secret with the certificates."""
    if settings.service is None:
        return Address(settings.host, 0), own_namespace, "operator-runner-jobs-certificate"
    namespace, name, port = settings.service
    namespace = namespace or own_namespace
    return Address(f"{name}.{namespace}.svc", port), namespace, f"{name}-certificate"
