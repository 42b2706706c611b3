"""Runs of the contract as Kubernetes Jobs: a control plane, the operator's servers and a kubelet.

The kubelet has no containers: the Pod of a run is a process of this machine, so that plays find the
files and servers of the test. Image, node and network are tested in tests/e2e/test_jobs.py.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from operator_runner.ansible.executor import LaunchedRun
from operator_runner.ansible.jobs.client import JobClient
from operator_runner.ansible.jobs.launcher import JobLauncher
from operator_runner.ansible.jobs.server import JobServer
from operator_runner.ansible.rundir import RunDir
from operator_runner.core.fencing import Fences
from operator_runner.core.model import GVK, JobTemplate, Json, RunContent, RunRequest, Watch
from operator_runner.core.settings import Address, AnsibleSettings
from operator_runner.kube.api import Api
from operator_runner.kube.certificate_sources import SecretCertificates
from operator_runner.kube.discovery import Discovery
from operator_runner.kube.session import connect
from operator_runner.net.certificates import CertificateLifetimes
from operator_runner.proxy.server import Proxy
from tests.contract.proxy.conftest import Recorder, config_map
from tests.support.kubelet import kubelet

_TEMPLATE = JobTemplate("example.com/ee:1")
_LOCAL = Address("127.0.0.1", 0)


class Pods:
    """What an operator has for Jobs, in one namespace, until the block is left."""

    def __init__(self, kubeconfig: Path, namespace: str, folder: Path) -> None:
        self._kubeconfig = kubeconfig
        self._namespace = namespace
        self._folder = folder
        self._stack = AsyncExitStack()
        self._runs = 0

    async def __aenter__(self) -> Self:
        connection = await connect(self._kubeconfig, user_agent="operator-runner/test")
        self._stack.push_async_callback(connection.close)
        self._api = api = Api(connection)
        path = f"/api/v1/namespaces/{self._namespace}/configmaps"
        self._owner = await api.request("POST", path, body=config_map("owner", self._namespace))
        # The image has the variables of local runs, so that results do not differ by them.
        pods = kubelet(api, self._namespace, self._folder, os.environ)
        await self._stack.enter_async_context(pods)
        self._proxy = Proxy(
            connection,
            _LOCAL,
            Recorder(),
            Discovery(api),
            self._folder,
            inject_owner_ref=False,
        )
        await self._proxy.start()
        self._stack.push_async_callback(self._proxy.stop)
        certificates = SecretCertificates(
            api, self._namespace, "certificate", CertificateLifetimes()
        )
        self._server = JobServer(self._proxy, certificates, 0, _LOCAL)
        await self._server.start()
        self._stack.push_async_callback(self._server.stop)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def launcher(self, settings: AnsibleSettings) -> PodLauncher:
        """Return a launcher for one run, with the settings of an operator."""
        self._runs += 1
        client = JobClient(self._api, self._namespace)
        launcher = JobLauncher(self._server, lambda _: client, settings, Fences())
        return PodLauncher(launcher, self._proxy, self._owner, f"run-{self._runs}")


@dataclass(frozen=True)
class PodLauncher:
    """Starts a run as a Job for a ConfigMap; see `executor.Launcher`."""

    _launcher: JobLauncher
    _proxy: Proxy
    _owner: Json
    _name: str
    """Jobs are named after it."""

    async def ready(self) -> None:
        """See `executor.Launcher`."""
        await self._launcher.ready()

    @asynccontextmanager
    async def start(self, request: RunRequest, rundir: RunDir) -> AsyncIterator[LaunchedRun]:
        """See `executor.Launcher`."""
        watch = Watch(GVK("", "v1", "ConfigMap"), RunContent(role=Path("/roles/any")))
        job = replace(
            request,
            ref=replace(request.ref, name=self._name),
            job=_TEMPLATE,
            uid=self._owner["metadata"]["uid"],
        )
        with self._proxy.grant(self._owner, watch, request.run_id):
            async with self._launcher.start(job, rundir) as run:
                yield run
