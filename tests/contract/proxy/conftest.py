"""A proxy in front of a real API server, or of a small server that the test writes itself."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml

from operator_runner.core.model import GVK, FieldChange, Json, ObjectRef, RunContent, Watch
from operator_runner.core.settings import Address
from operator_runner.devcluster import Cluster
from operator_runner.kube.api import Api
from operator_runner.kube.discovery import Discovery
from operator_runner.kube.object_readiness import Health
from operator_runner.kube.session import Connection, connect
from operator_runner.proxy.dry_run.overlay import DryRun
from operator_runner.proxy.server import Proxy

OWNER_GVK = GVK("", "v1", "ConfigMap")
OWNER_GVKS = (OWNER_GVK, GVK("networking.k8s.io", "v1", "NetworkPolicy"))
"""Kinds of resources in tests; the second one has generations."""
WATCH = Watch(
    OWNER_GVK, RunContent(role=Path("/roles/any")), blacklist=frozenset({GVK("", "v1", "Secret")})
)
SECONDS = 180.0
"""No answer may take longer, however busy the machine is."""

Start = Callable[..., "Run"]
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter, str], Awaitable[None]]


@dataclass
class Recorder:
    """Records the reports of the proxy."""

    seen: list[tuple[ObjectRef, ObjectRef]] = field(default_factory=list)
    written: list[tuple[ObjectRef, str, str]] = field(default_factory=list)
    edited: list[tuple[ObjectRef, str]] = field(default_factory=list)
    health: list[Health] = field(default_factory=list)
    read: list[bool] = field(default_factory=list)
    changes: list[FieldChange] = field(default_factory=list)
    known: dict[ObjectRef, bytes] = field(default_factory=dict)

    def on_dependent(
        self,
        owner: ObjectRef,
        dependent: ObjectRef,
        metadata: Json,
        watch: Watch,
        health: Health,
        *,
        body: Json,
        is_read: bool = True,
    ) -> None:
        """Keep the owner and its object, its health, and whether that was read."""
        assert metadata["name"] == dependent.name
        assert body["metadata"] == metadata
        assert watch.gvk == OWNER_GVK
        self.seen.append((owner, dependent))
        self.health.append(health)
        self.read.append(is_read)

    def on_write(
        self, owner: ObjectRef, dependent: ObjectRef, resource_version: str, verb: str
    ) -> None:
        """Keep the object, the version and the verb."""
        assert owner.gvk in OWNER_GVKS
        self.written.append((dependent, resource_version, verb))

    def changed(self, owner: ObjectRef, changes: Sequence[FieldChange]) -> None:
        """Keep the fields that were changed."""
        assert owner.gvk in OWNER_GVKS
        self.changes.extend(changes)

    def newest(self, owner: ObjectRef, dependent: ObjectRef, watch: Watch) -> bytes | None:
        """Return what a test has set."""
        assert (owner.gvk, watch.gvk) == (OWNER_GVK, OWNER_GVK)
        return self.known.get(dependent)

    def on_own_write(self, owner: ObjectRef, metadata: Json) -> None:
        """Record the owner among the written objects, with its version."""
        self.edited.append((owner, metadata["resourceVersion"]))


@dataclass
class Run:
    """Environment of a play: a kubeconfig file, and programs that use it."""

    kubeconfig: Path
    bin: Path
    environment: dict[str, str] = field(default_factory=dict)

    async def start(self, *command: str | Path) -> asyncio.subprocess.Process:
        """Start a program."""
        home = self.kubeconfig.parent
        environment = {
            **os.environ,
            "KUBECONFIG": str(self.kubeconfig),
            "K8S_AUTH_KUBECONFIG": str(self.kubeconfig),
            "HOME": str(home),
            **self.environment,
        }
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            *command, env=environment, cwd=home, stdin=pipe, stdout=pipe, stderr=pipe
        )

    async def done(self, *command: str | Path, input_: str = "") -> tuple[int, str, str]:
        """Run a program to its end; return exit status, output and errors."""
        process = await self.start(*command)
        async with asyncio.timeout(SECONDS):
            out, err = await process.communicate(input_.encode())
        assert process.returncode is not None
        return process.returncode, out.decode(), err.decode()

    def command(self, *args: str) -> tuple[str, ...]:
        """Return a command of kubectl without the kubeconfig of the cluster's wrapper."""
        return (str(self.bin / "kubectl"), f"--kubeconfig={self.kubeconfig}", *args)

    async def kubectl(self, *args: str, input_: str = "") -> str:
        """Run kubectl; fail the test if it fails."""
        status, out, err = await self.done(*self.command(*args), input_=input_)
        assert status == 0, f"kubectl {' '.join(args)}: {err}"
        return out

    async def get(self, kind: str, name: str, *args: str) -> Json:
        """Return an object."""
        found: Json = json.loads(await self.kubectl("get", kind, name, "--output=json", *args))
        return found

    async def send(self, verb: str, *objects: Json, flags: tuple[str, ...] = ()) -> str:
        """Let kubectl create, replace or apply objects."""
        text = yaml.safe_dump_all(objects)
        return await self.kubectl(verb, "--filename=-", *flags, input_=text)

    @property
    def server(self) -> tuple[str, str, str]:
        """Server, file of its certificate authority and token, from the kubeconfig."""
        content = yaml.safe_load(self.kubeconfig.read_text())
        cluster = content["clusters"][0]["cluster"]
        token = content["users"][0]["user"]["token"]
        return cluster["server"], cluster["certificate-authority"], token


def config_map(name: str, namespace: str = "", **data: str) -> Json:
    """Return a ConfigMap."""
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def owners(body: Json) -> list[str]:
    """Return the names of an object's owners."""
    return [reference["name"] for reference in body["metadata"].get("ownerReferences", [])]


def source(server: str) -> str:
    """Return the operator's own kubeconfig for `server`, with the token `operator`."""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "a",
            "clusters": [{"name": "a", "cluster": {"server": server}}],
            "users": [{"name": "a", "user": {"token": "operator"}}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        }
    )


@asynccontextmanager
async def proxied(
    connection: Connection, observer: Any, *, port: int = 0, **options: Any
) -> AsyncIterator[Proxy]:
    """Run a proxy, on a free port by default; at its end no file of it is left."""
    with TemporaryDirectory() as folder:
        proxy = Proxy(
            connection,
            Address("127.0.0.1", port),
            observer,
            Discovery(Api(connection)),
            Path(folder, "shared"),
            **options,
        )
        await proxy.start()
        try:
            yield proxy
        finally:
            await proxy.stop()
        assert not list(Path(folder).iterdir())  # noqa: ASYNC240 (a test may wait)


@pytest.fixture
def recorder() -> Recorder:
    """Return a recorder of the proxy's reports."""
    return Recorder()


@pytest.fixture
async def connection(control_plane: Path) -> AsyncIterator[Connection]:
    """Connect to the real API server as the operator does."""
    opened = await connect(control_plane, user_agent="operator-runner/test")
    yield opened
    await opened.close()


@pytest.fixture
async def owner(connection: Connection, namespace: str) -> Json:
    """Make the resource that runs work for."""
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    body = config_map("owner", namespace)
    async with connection.http.post(connection.url(path), json=body) as response:
        assert response.status == 201
        made: Json = await response.json()
        return made


@pytest.fixture
async def proxy(connection: Connection, recorder: Recorder) -> AsyncIterator[Proxy]:
    """Serve the proxy in front of the real API server."""
    async with proxied(connection, recorder) as served:
        yield served


@pytest.fixture
def run(proxy: Proxy, owner: Json, tmp_path: Path, control_plane_cluster: Cluster) -> Any:
    """Give the programs of one run."""
    with proxy.grant(owner, WATCH, "run-1") as text:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(text)
        yield Run(kubeconfig, control_plane_cluster.bin)


@pytest.fixture
def start(
    proxy: Proxy, owner: Json, tmp_path: Path, control_plane_cluster: Cluster
) -> Iterator[Start]:
    """Give a function that starts a run of the owner with a watch."""
    with ExitStack() as stack:

        def started(watch: Watch, run_id: str = "run-1", **options: Any) -> Run:
            text = stack.enter_context(proxy.grant(owner, watch, run_id, **options))
            kubeconfig = tmp_path / f"kubeconfig-{watch.ownership.value}-{run_id}"
            kubeconfig.write_text(text)
            return Run(kubeconfig, control_plane_cluster.bin)

        yield started


@pytest.fixture
async def upstream(
    tmp_path: Path, recorder: Recorder
) -> AsyncIterator[Callable[..., Awaitable[Run]]]:
    """Give a function that puts the proxy in front of `serve(reader, writer, head)`.

    It is called for every connection with the first request's head; its credentials are the
    bearer token `operator`.
    """
    async with AsyncExitStack() as stack:

        async def start(
            serve: Serve,
            watch: Watch = WATCH,
            *,
            dry_run: DryRun | None = None,
            **options: Any,
        ) -> Run:
            async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                try:
                    head = await reader.readuntil(b"\r\n\r\n")
                    await serve(reader, writer, head.decode())
                except (asyncio.IncompleteReadError, ConnectionError):
                    return  # the proxy hung up
                finally:
                    writer.close()

            server = await asyncio.start_server(accept, "127.0.0.1", 0)
            stack.callback(server.close)
            port = server.sockets[0].getsockname()[1]
            file = tmp_path / "upstream.kubeconfig"
            file.write_text(source(f"http://127.0.0.1:{port}"))
            opened = await connect(file, user_agent="operator-runner/test")
            stack.push_async_callback(opened.close)
            proxy = await stack.enter_async_context(proxied(opened, recorder, **options))
            body = config_map("owner", "team")
            body["metadata"]["uid"] = "uid-1"
            kubeconfig = tmp_path / "kubeconfig"
            grant = proxy.grant(body, watch, "run-1", dry_run=dry_run)
            kubeconfig.write_text(stack.enter_context(grant))
            return Run(kubeconfig, tmp_path)

        yield start
