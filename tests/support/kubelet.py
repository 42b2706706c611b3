"""A small kubelet: runs the Pods of a namespace as processes of this machine.

It is for control planes without nodes. Images are not used; the paths of mounted Secrets and empty
directories are replaced in the command of the container.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from operator_runner.core.async_tasks import end_tasks
from operator_runner.core.errors import ApiError, Conflict, NotFound, Unavailable
from operator_runner.core.model import Json
from operator_runner.kube.api import MERGE_PATCH, Api

_POLL_SECONDS = 0.2
_NODE = "test-kubelet"
_SERVICE = re.compile(rb'"[a-z0-9.-]+\.svc"')
"""Addresses of Services: this machine is what is behind all of them, and it has no cluster DNS."""

_log = logging.getLogger(__name__)


@dataclass
class Kubelet:
    """The Pods of one namespace, by name, and their processes."""

    api: Api
    namespace: str
    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of the image, beside PATH and HOME."""
    processes: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _reports_ends: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        """Report the end of Pods as soon as it happens."""
        self._reports_ends.set()

    def hold_ends(self) -> None:
        """Do not report the end of Pods until `release_ends`."""
        self._reports_ends.clear()

    def release_ends(self) -> None:
        """Report the ends that were held back."""
        self._reports_ends.set()

    async def run(self) -> None:
        """Run Pods until cancelled; then end all processes."""
        await self._register()
        try:
            while True:
                with contextlib.suppress(ApiError):
                    await self._sync()
                await asyncio.sleep(_POLL_SECONDS)
        finally:
            await end_tasks(self._tasks.values())
            for name, process in self.processes.items():
                self.kill(name)
                await process.wait()

    def kill(self, name: str) -> None:
        """Kill the processes of a Pod, as the kernel does if memory is exhausted."""
        for process in _tree(self.processes[name]):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    async def evict(self, name: str) -> None:
        """End a Pod as the kubelet of a node with too little memory does."""
        await end_tasks([self._tasks[name]])
        self.kill(name)
        message = "The node was low on resource: memory."
        await self._set_status(name, {"phase": "Failed", "reason": "Evicted", "message": message})

    async def _register(self) -> None:
        # Without its Node, Pods are deleted after 40 s as orphans.
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": _NODE}}
        with contextlib.suppress(Conflict):  # it exists
            await self._request("POST", "/api/v1/nodes", body=node)

    async def _sync(self) -> None:
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        pods = (await self.api.request("GET", path, outer_levels=2))["items"]
        for pod in pods:
            name = pod["metadata"]["name"]
            if pod["metadata"].get("deletionTimestamp"):
                await self._end(name)
            elif name not in self._tasks:
                self._tasks[name] = asyncio.create_task(self._run_pod(pod), name=name)

    async def _request(self, method: str, path: str, **options: Any) -> Json:
        """Send a request until the API server is available. Raises ApiError."""
        while True:
            try:
                return await self.api.request(method, path, **options)
            except Unavailable:
                await asyncio.sleep(_POLL_SECONDS)

    async def _run_pod(self, pod: Json) -> None:
        try:
            await self._run_container(pod)
        except NotFound:
            pass  # the Pod was deleted
        except Exception:
            # Nobody awaits the task, and a Pod that stays Pending explains nothing.
            _log.exception("Cannot run Pod %s", pod["metadata"]["name"])
            raise

    async def _run_container(self, pod: Json) -> None:
        name = pod["metadata"]["name"]
        if not pod["spec"].get("nodeName"):
            target = {"apiVersion": "v1", "kind": "Node", "name": _NODE}
            binding = {"apiVersion": "v1", "kind": "Binding", "target": target}
            body = {**binding, "metadata": {"name": name}}
            with contextlib.suppress(Conflict):  # an earlier request was carried out
                await self._request("POST", f"{self._path(name)}/binding", body=body)
        paths = await self._mount(pod)
        container = pod["spec"]["containers"][0]
        command = [_replaced(word, paths) for word in container["command"]]
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=self.folder,
            env={"HOME": str(self.folder), **self.environment, "PATH": path},
            start_new_session=True,
        )
        self.processes[name] = process
        await self._set_status(name, {"phase": "Running"})
        status = await process.wait()
        await self._reports_ends.wait()
        reason = (
            "OOMKilled" if status == -signal.SIGKILL else "Completed" if not status else "Error"
        )
        code = 128 - status if status < 0 else status
        ended = {
            "name": container["name"],
            "image": container["image"],
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": {"terminated": {"exitCode": code, "reason": reason}},
        }
        phase = "Failed" if status else "Succeeded"
        await self._set_status(name, {"phase": phase, "containerStatuses": [ended]})

    async def _mount(self, pod: Json) -> dict[str, Path]:
        """Return the directory of each mount path."""
        volumes = {each["name"]: each for each in pod["spec"]["volumes"]}
        found: dict[str, Path] = {}
        for mount in pod["spec"]["containers"][0]["volumeMounts"]:
            volume = volumes[mount["name"]]
            folder = self.folder / pod["metadata"]["name"] / mount["name"]
            folder.mkdir(parents=True)
            if "secret" in volume:
                await self._write_secret(volume["secret"]["secretName"], folder)
            found[mount["mountPath"]] = folder
        return found

    async def _write_secret(self, name: str, folder: Path) -> None:
        path = f"/api/v1/namespaces/{self.namespace}/secrets/{name}"
        while True:
            try:
                secret = await self._request("GET", path)
                break
            except NotFound:  # the Pod waits for it
                await asyncio.sleep(_POLL_SECONDS)
        for key, value in secret["data"].items():
            content = base64.b64decode(value)
            (folder / key).write_bytes(_SERVICE.sub(b'"127.0.0.1"', content))

    async def _end(self, name: str) -> None:
        task = self._tasks.pop(name, None)
        if task is not None:
            await end_tasks([task])
        process = self.processes.pop(name, None)
        if process is not None and process.returncode is None:
            tree = _tree(process)
            process.terminate()
            await process.wait()
            # A container has no processes without its first one.
            for each in tree:
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()
        options = {"gracePeriodSeconds": 0}
        with contextlib.suppress(NotFound):
            await self.api.request("DELETE", self._path(name), body=options)

    async def _set_status(self, name: str, status: Json) -> None:
        body = {"status": status}
        await self._request(
            "PATCH", f"{self._path(name)}/status", body=body, content_type=MERGE_PATCH
        )

    def _path(self, name: str) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods/{name}"


def _tree(process: asyncio.subprocess.Process) -> list[psutil.Process]:
    try:
        first = psutil.Process(process.pid)
        return [first, *first.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _replaced(word: str, paths: dict[str, Path]) -> str:
    for mount, folder in paths.items():
        word = word.replace(mount, str(folder))
    return word


@asynccontextmanager
async def kubelet(
    api: Api, namespace: str, folder: Path, environment: Mapping[str, str] | None = None
) -> AsyncIterator[Kubelet]:
    """Run the Pods of a namespace inside the block; see `Kubelet.environment`."""
    running = Kubelet(api, namespace, folder, environment or {})
    task = asyncio.create_task(running.run(), name="kubelet")
    try:
        yield running
    finally:
        await end_tasks([task])
