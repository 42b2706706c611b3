"""The execution of runs: directories, proxy, executor, Jobs, and what is kept of runs."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Any

from operator_runner.ansible.background_launcher import BackgroundLauncher
from operator_runner.ansible.executor import AnsibleExecutor
from operator_runner.app.ansible_setup import rundirs_of
from operator_runner.app.job_serving import JobServing, job_launcher_of
from operator_runner.app.job_slots import JobSlots
from operator_runner.app.leadership import Leadership
from operator_runner.app.run_access import RunAccess, WriteObserver
from operator_runner.app.run_files import RunFiles
from operator_runner.controller.sources.dependents import Dependents
from operator_runner.core.fencing import Fence
from operator_runner.core.model import Cause, ObjectRef, Watch
from operator_runner.core.settings import Settings
from operator_runner.kube.api import Api
from operator_runner.kube.discovery import Discovery
from operator_runner.kube.run_archive import RunArchive
from operator_runner.kube.session import Connection
from operator_runner.proxy.server import Proxy
from operator_runner.telemetry.runs.store import RunStore


class Execution:
    """Everything that a run needs beside its reconciler."""

    def __init__(
        self,
        settings: Settings,
        watches: Sequence[Watch],
        connection: Connection,
        api: Api,
        discovery: Discovery,
        *,
        launcher: BackgroundLauncher,
        leadership: Leadership,
        dependents: Dependents,
        runs: RunStore,
        enqueue: Callable[[ObjectRef, Cause], None],
        on_listed: Callable[[Sequence[ObjectRef], frozenset[int]], None],
    ) -> None:
        """Build the parts; nothing is started yet. Raises ConfigError for a bad work dir.

        `on_listed` is called, with shards, once the running Jobs of gained slots are expected.
        """
        self._settings, self._leadership, self._runs = settings, leadership, runs
        self._api, self._namespace = api, connection.namespace
        self._on_listed = on_listed
        self.rundirs = rundirs_of(settings, watches)
        self.proxy = Proxy(
            connection,
            settings.proxy,
            WriteObserver(dependents, runs),
            discovery,
            self.rundirs.shared,
            inject_owner_ref=settings.inject_owner_ref,
            anonymous=watches if settings.proxy_allow_anonymous else None,
            record=settings.record_requests,
            fences=leadership.fences,
            on_request=runs.on_request,
            on_unserved=self.rundirs.forget_discovery,
        )
        job_launcher = None
        self.jobs: JobServing | None = None
        if any(watch.job is not None for watch in watches):
            slots = None if leadership.sharding is None else JobSlots()
            job_launcher, server = job_launcher_of(
                settings,
                api,
                self._namespace,
                proxy=self.proxy,
                fences=leadership.fences,
                may_start=leadership.gate.reports_on,
                term_of=leadership.gate.term_of_uid,
                slots=slots,
                enqueue=enqueue,
            )
            self.jobs = JobServing(server, job_launcher, watches, slots)
        self.executor = AnsibleExecutor(
            launcher,
            self.rundirs,
            settings.ansible,
            settings.kubeconfig,
            job_launcher,
            context=settings.context,
            impersonated=connection.impersonated,
        )
        self.archive = self._make_archive()
        self.run_files = RunFiles(self.executor)
        self.access = RunAccess(self.proxy, dependents)

    def _make_archive(self) -> RunArchive | None:
        """Return where runs are kept for a new Pod: beside the Lease, if there is one."""
        election = self._settings.leader_election
        if not (self._settings.keep_runs and election.enabled) or self._settings.once is not None:
            return None
        # With shards, no other replica writes the keys of the same resources.
        term = self._leadership.term if self._leadership.sharding is None else None
        archive = RunArchive(
            self._api,
            election.namespace or self._namespace,
            election.lease_name,
            self._runs,
            lambda: Fence(term),
        )
        self._runs.on_finished(archive.finished)
        self._runs.on_deleted(archive.deleted)
        return archive

    async def start(self, stack: AsyncExitStack) -> None:
        """Open the proxy; `stack` closes it. Raises ConfigError for a port that cannot be used."""
        await self.proxy.start()
        stack.push_async_callback(self.proxy.stop)
        stack.push_async_callback(self.leave_jobs)
        stack.push_async_callback(self.run_files.finish)

    def tasks(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """Yield the tasks that run as long as the operator, with their names."""
        if self.jobs is not None:
            yield "Jobs", self.jobs.run()
            if self.jobs.slots is not None:
                yield "Jobs of gained slots", self.jobs.follow(self.jobs.slots, self._on_listed)
        if self.archive is not None:
            yield "archive of runs", self.archive.run()

    async def adoptable(self) -> Sequence[ObjectRef]:
        """Return resources with running Jobs, whose plays wait for the operator."""
        return () if self.jobs is None else await self.jobs.adoptable()

    def gained(self, slots: frozenset[int]) -> bool:
        """Return whether the running Jobs of slots are listed first; see `on_listed`."""
        if self.jobs is None or self.jobs.slots is None:
            return False
        self.jobs.slots.gained(slots)
        return True

    def released(self, slots: frozenset[int]) -> None:
        """Leave the running Jobs of slots to their next owner."""
        if self.jobs is not None:
            self.jobs.released(slots)

    async def leave_jobs(self) -> None:
        """Leave running Jobs to the next operator."""
        if self.jobs is not None:
            await self.jobs.leave()

    async def stop_archive(self) -> None:
        """Write the runs that are not in the archive yet."""
        if self.archive is not None:
            await self.archive.stop()
