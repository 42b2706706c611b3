"""Runs as Jobs: their launcher and their port, and which Jobs of earlier runs may be adopted.

The leader has the port, or each replica with shards, and closes it before it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NoReturn

import structlog

from operator_runner.ansible.jobs.client import JobClient
from operator_runner.ansible.jobs.launcher import JobLauncher
from operator_runner.ansible.jobs.server import JobServer
from operator_runner.core.errors import ApiError, ConfigError, Conflict, Unavailable
from operator_runner.core.fencing import Fences, LeaseTerm
from operator_runner.core.model import Cause, ObjectRef, Trigger, Watch
from operator_runner.core.settings import Address, JobSettings, Settings
from operator_runner.core.slot_assignment import slot_of
from operator_runner.kube.api import Api
from operator_runner.kube.certificate_sources import SecretCertificates
from operator_runner.net.certificates import CertificateLifetimes
from operator_runner.proxy.server import Proxy


class JobSlots:
    """Slots from when they are gained until their Jobs have been listed, and from then on."""

    def __init__(self) -> None:
        """Start without slots."""
        self._gained: frozenset[int] = frozenset()
        self._listing: frozenset[int] = frozenset()
        self._listed: frozenset[int] = frozenset()
        self._changed = asyncio.Event()

    def gained(self, slots: frozenset[int]) -> None:
        """Have the Jobs of these slots listed."""
        self._gained |= slots
        self._changed.set()

    def released(self, slots: frozenset[int]) -> None:
        """Drop slots that another replica has from now on."""
        self._gained -= slots
        self._listing -= slots
        self._listed -= slots

    async def begin_listing(self) -> None:
        """Wait for slots that were gained; their Jobs are to be listed from now on."""
        while not self._gained:
            self._changed.clear()
            await self._changed.wait()
        self._listing, self._gained = self._gained, frozenset()

    def end_listing(self) -> frozenset[int]:
        """Return the slots whose Jobs were listed, without those that were released meanwhile."""
        slots, self._listing = self._listing, frozenset()
        self._listed |= slots
        return slots

    def is_listing(self, uid: str) -> bool:
        """Return whether the Jobs of the resource are being listed."""
        return slot_of(uid) in self._listing

    def is_listed(self, uid: str) -> bool:
        """Return whether the running Jobs of the resource are known."""
        return slot_of(uid) in self._listed


_RETRY_SECONDS = 2.0

_log = structlog.get_logger(__name__)


class JobServing:
    """Serves Jobs as long as the operator may."""

    def __init__(
        self,
        server: JobServer,
        launcher: JobLauncher,
        watches: Sequence[Watch],
        slots: JobSlots | None = None,
    ) -> None:
        """Open nothing yet. `slots` are those of this replica, None without shards."""
        self._server = server
        self._launcher = launcher
        self._watches = watches
        self.slots = slots
        self._opened = asyncio.Event()

    async def run(self) -> None:
        """Open the port and renew its certificates, until cancelled. Raises ConfigError."""
        await self.open()
        await self._server.renew()

    async def open(self) -> None:
        """Open the port as soon as the API server permits it. Raises ConfigError.

        Without shards only the leader may: other replicas do not have the tokens of runs.
        """
        await self._retried(self._open)
        self._opened.set()

    async def _open(self) -> None:
        if self.slots is None:
            await self._launcher.expect_adoptions(self._watches, lambda _: True)
        await self._server.start()

    async def follow(
        self, slots: JobSlots, on_listed: Callable[[Sequence[ObjectRef], frozenset[int]], None]
    ) -> NoReturn:
        """Expect the running Jobs of each slot that is gained, until cancelled.

        `on_listed` is called with their resources and the slots. Raises ConfigError.
        """
        await self._opened.wait()
        while True:
            await slots.begin_listing()
            await self._retried(
                lambda: self._launcher.expect_adoptions(self._watches, slots.is_listing)
            )
            on_listed(self._launcher.adoptable, slots.end_listing())

    def released(self, slots: frozenset[int]) -> None:
        """Leave the Jobs of slots to another replica."""
        if self.slots is not None:
            self.slots.released(slots)
            self._launcher.forget(lambda uid: slot_of(uid) in slots)

    async def _retried(self, step: Callable[[], Awaitable[None]]) -> None:
        """Repeat a step while the API server is unavailable. Raises ConfigError."""
        while True:
            try:
                await step()
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
    may_start: Callable[[str], bool],
    term_of: Callable[[str], LeaseTerm | None],
    slots: JobSlots | None,
    enqueue: Callable[[ObjectRef, Cause], None],
) -> tuple[JobLauncher, JobServer]:
    """Return the launcher of Jobs and the server for their Pods. `namespace` is the operator's.

    `may_start` returns whether this replica starts the runs of the resource with a uid, `term_of`
    the term that covers it; `slots` are those of this replica, None without shards.
    """
    host, certificate_namespace, secret = _names_for_jobs(settings.jobs, namespace)
    source = SecretCertificates(api, certificate_namespace, secret, CertificateLifetimes())
    owns = None if slots is None else slots.is_listed
    server = JobServer(proxy, source, settings.jobs.port, host, owns)

    def client(of_resource: str) -> JobClient:
        return JobClient(api, of_resource or namespace)

    def on_adopted(ref: ObjectRef) -> None:
        enqueue(ref, Cause(Trigger.START, "end of an adopted run"))

    launcher = JobLauncher(
        server,
        client,
        settings.ansible,
        fences,
        on_adopted=on_adopted,
        may_start=may_start,
        term_of=term_of,
    )
    return launcher, server


def _names_for_jobs(settings: JobSettings, own_namespace: str) -> tuple[Address, str, str]:
    """Return where Pods connect to, and namespace and name of the Secret with the certificates."""
    if settings.service is None:
        return Address(settings.host, 0), own_namespace, "operator-runner-jobs-certificate"
    namespace, name, port = settings.service
    namespace = namespace or own_namespace
    return Address(f"{name}.{namespace}.svc", port), namespace, f"{name}-certificate"
