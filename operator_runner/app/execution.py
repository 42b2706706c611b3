"""The execution of runs: directories, proxy, executor and Jobs."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Any

from operator_runner.ansible.executor import AnsibleExecutor, BackgroundLauncher
from operator_runner.app.ansible_setup import rundirs_of
from operator_runner.app.job_serving import JobServing, JobSlots, job_launcher_of
from operator_runner.app.leadership import Leadership
from operator_runner.controller.sources.dependents import Dependents
from operator_runner.controller.workqueue import WorkQueue
from operator_runner.core.model import Cause, ObjectRef, Trigger, Watch
from operator_runner.core.resource_states import ResourceStates
from operator_runner.core.settings import Settings
from operator_runner.kube.api import Api
from operator_runner.kube.discovery import Discovery
from operator_runner.kube.session import Connection
from operator_runner.proxy.server import Proxy
from operator_runner.telemetry.runs.records import RunStore


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
        states: ResourceStates,
        queue: WorkQueue,
    ) -> None:
        """Build the parts; nothing is started yet. Raises ConfigError for a bad work dir."""
        self._namespaces, self._queue = settings.namespaces, queue
        self.rundirs = rundirs_of(settings, watches)
        self.proxy = Proxy(
            connection,
            settings.proxy,
            dependents,
            discovery,
            self.rundirs.shared,
            inject_owner_ref=settings.inject_owner_ref,
            anonymous=watches if settings.proxy_allow_anonymous else None,
            record=settings.record_requests,
            fences=leadership.fences,
            on_request=runs.on_request,
            on_unserved=self.rundirs.forget_discovery,
            states=states,
        )
        job_launcher = None
        self.jobs: JobServing | None = None
        if any(watch.job is not None for watch in watches):
            slots = None if leadership.sharding is None else JobSlots()
            job_launcher, server = job_launcher_of(
                settings,
                api,
                connection.namespace,
                proxy=self.proxy,
                fences=leadership.fences,
                may_start=leadership.owns,
                term_of=leadership.term_of_uid,
                slots=slots,
                enqueue=queue.add,
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

    async def start(self, stack: AsyncExitStack) -> None:
        """Open the proxy; `stack` closes it. Raises ConfigError for a port that cannot be used."""
        await self.proxy.start()
        stack.push_async_callback(self.proxy.stop)
        stack.push_async_callback(self.leave_jobs)

    def tasks(
        self, on_listed: Callable[[Sequence[ObjectRef], frozenset[int]], None] | None
    ) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """Yield the tasks that run as long as the operator, with their names.

        `on_listed` is called once the running Jobs of gained slots are expected; None without
        shards.
        """
        if self.jobs is not None:
            yield "Jobs", self.jobs.run()
            if self.jobs.slots is not None and on_listed is not None:
                yield "Jobs of gained slots", self.jobs.follow(self.jobs.slots, on_listed)

    async def adopt(self) -> None:
        """Reconcile resources with running Jobs before all others: their plays wait for it."""
        self.enqueue_adoptable(() if self.jobs is None else await self.jobs.adoptable())

    def enqueue_adoptable(self, refs: Sequence[ObjectRef]) -> None:
        """Enqueue resources with running Jobs."""
        for ref in refs:
            if not self._namespaces or not ref.namespace or ref.namespace in self._namespaces:
                self._queue.add(ref, Cause(Trigger.START, "running Job"))

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
