"""The port for Jobs: opened by the leader, and closed before the runs of Jobs are left."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

import structlog

from operator_runner.core.errors import ApiError, ConfigError, Conflict, Unavailable
from operator_runner.core.model import ObjectRef, Watch

_RETRY_SECONDS = 2.0

_log = structlog.get_logger(__name__)


class Server(Protocol):
    """The server for the Pods of Jobs; see `proxy.job_server.JobServer`."""

    async def start(self) -> None:
        """Listen. Raises ApiError and ConfigError."""

    async def renew(self) -> None:
        """Renew the certificates until cancelled."""

    async def stop(self) -> None:
        """Close the server and its connections."""


class Launcher(Protocol):
    """The launcher of Jobs; see `ansible.jobs.launcher.JobLauncher`."""

    @property
    def adoptable(self) -> Sequence[ObjectRef]:
        """What the resources of expected Jobs may be."""

    async def expect_adoptions(self, watches: Sequence[Watch]) -> None:
        """Have the server expect the Jobs of earlier runs. Raises ApiError."""

    def leave(self) -> None:
        """Do not delete the Jobs of cancelled runs."""


class JobServing:
    """Serves Jobs as long as the operator may."""

    def __init__(self, server: Server, launcher: Launcher, watches: Sequence[Watch]) -> None:
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

        Only the leader may: others do not have the tokens of runs.
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
