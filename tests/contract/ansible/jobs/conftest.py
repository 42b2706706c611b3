"""Jobs on a real API server; a small kubelet runs their Pods on this machine."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from operator_runner.ansible.cold.launcher import ColdLauncher
from operator_runner.ansible.executor import AnsibleExecutor
from operator_runner.ansible.jobs.client import JobClient
from operator_runner.ansible.jobs.launcher import JobLauncher
from operator_runner.ansible.jobs.server import JobServer
from operator_runner.ansible.rundir import RunDirs
from operator_runner.core.fencing import Fences
from operator_runner.core.model import (
    GVK,
    JobTemplate,
    Json,
    ObjectRef,
    RunContent,
    RunEvent,
    RunOutcome,
    RunRequest,
    Watch,
)
from operator_runner.core.settings import Address, AnsibleSettings
from operator_runner.kube.api import Api
from operator_runner.kube.certificate_sources import SecretCertificates
from operator_runner.kube.discovery import Discovery
from operator_runner.kube.session import Connection, connect
from operator_runner.net.certificates import CertificateLifetimes
from operator_runner.proxy.server import Proxy
from tests.contract.proxy.conftest import Recorder, config_map
from tests.fakes.term import Clock, held_term
from tests.support.kubelet import Kubelet, kubelet
from tests.support.operator import free_port

SETTINGS = AnsibleSettings(skip_facts=True)
TEMPLATE = JobTemplate("example.com/ee:1")
SECONDS = 180.0


@dataclass
class JobRuns:
    """An operator, as far as Jobs need one, and a role that the test writes."""

    connection: Connection
    owner: Json
    folder: Path
    kubelet: Kubelet
    stack: AsyncExitStack
    events: list[RunEvent] = field(default_factory=list)

    def __post_init__(self) -> None:
        # No other process gets it between two operators: Pods of the first connect to the second.
        self.port = free_port()
        self.api = Api(self.connection)
        self.ref = ObjectRef.of(self.owner)
        self.client = JobClient(self.api, self.ref.namespace)
        self.role = self.folder / "project" / "roles" / "tried"
        (self.role / "tasks").mkdir(parents=True)
        self.out = self.folder / "out"
        self.out.mkdir()
        self.watch = Watch(GVK("", "v1", "ConfigMap"), RunContent(role=self.role), job=TEMPLATE)
        self.recorder = Recorder()
        self.clock = Clock()
        self.term = held_term(self.clock)
        self.owns_slot = True

    async def start(self) -> None:
        """Start the operator's servers; a second call is the next operator on the same port."""
        self.servers = await self.stack.enter_async_context(AsyncExitStack())
        work = self.folder / f"work-{secrets.token_hex(2)}"
        self.rundirs = RunDirs(work)
        proxy = Proxy(
            self.connection,
            Address("127.0.0.1", 0),
            self.recorder,
            Discovery(self.api),
            self.rundirs.shared,
        )
        await proxy.start()
        self.servers.push_async_callback(proxy.stop)
        namespace, name = self.ref.namespace, "certificate"
        source = SecretCertificates(self.api, namespace, name, CertificateLifetimes())
        server = JobServer(proxy, source, self.port, Address("127.0.0.1", 0))
        self.adopted: list[ObjectRef] = []
        self.launcher = JobLauncher(
            server,
            lambda _: self.client,
            SETTINGS,
            Fences(lambda _: self.term),
            on_adopted=self.adopted.append,
            may_start=lambda _: self.owns_slot,
            term_of=lambda _: self.term,
        )
        await self.launcher.expect_adoptions([self.watch])
        await server.start()
        self.servers.push_async_callback(server.stop)
        self.proxy, self.server = proxy, server
        self.executor = AnsibleExecutor(
            ColdLauncher(SETTINGS), self.rundirs, SETTINGS, jobs=self.launcher
        )

    async def stop(self) -> None:
        """Stop the servers as an operator that ends."""
        await self.servers.aclose()

    async def __call__(
        self,
        tasks: str,
        *,
        job: JobTemplate | None = TEMPLATE,
        seconds: float | None = None,
        environment: Mapping[str, str] | None = None,
        **variables: Any,
    ) -> RunOutcome:
        """Run tasks to their end, by default as a Job."""
        (self.role / "tasks" / "main.yml").write_text(tasks)
        self.run_id = secrets.token_hex(8)
        with self.proxy.grant(self.owner, self.watch, self.run_id) as kubeconfig:
            request = RunRequest(
                run_id=self.run_id,
                ref=self.ref,
                content=self.watch.content,
                extra_vars={"out": str(self.out), **variables},
                kubeconfig=kubeconfig,
                verbosity=0,
                max_artifacts=20,
                timeout=None if seconds is None else timedelta(seconds=seconds),
                job=job,
                uid=self.owner["metadata"]["uid"],
                state_key="state",
                environment=environment or {},
            )
            async with asyncio.timeout(SECONDS):
                return await self.executor.run(request, self.events.append)

    async def leave(self, tasks: str, **variables: Any) -> None:
        """Start a Job, and leave it to the next operator once its tasks have written `count`."""
        running = asyncio.create_task(self(tasks, **variables))
        await self.written("count")
        self.launcher.leave()
        running.cancel()
        await asyncio.wait({running})

    async def written(self, name: str) -> str:
        """Wait until a task has written a file; return its content."""
        async with asyncio.timeout(SECONDS):
            while not (self.out / name).exists():  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        return (self.out / name).read_text()

    async def job(self) -> Json:
        """Return the only Job of the resource."""
        (job,) = await self.client.jobs_of(self.owner["metadata"]["uid"])
        return job

    async def pod(self) -> Json:
        """Return the only Pod of the only Job."""
        (pod,) = await self.client.pods_of((await self.job())["metadata"]["name"])
        return pod


@pytest.fixture
async def runs(control_plane: Path, namespace: str, tmp_path: Path) -> AsyncIterator[JobRuns]:
    """Start the servers of an operator, a kubelet, and make a resource."""
    async with AsyncExitStack() as stack:
        connection = await connect(control_plane, user_agent="operator-runner/test")
        stack.push_async_callback(connection.close)
        api = Api(connection)
        path = f"/api/v1/namespaces/{namespace}/configmaps"
        owner = await api.request("POST", path, body=config_map("owner", namespace))
        pods = await stack.enter_async_context(kubelet(api, namespace, tmp_path))
        made = JobRuns(connection, owner, tmp_path, pods, stack)
        await made.start()
        yield made
