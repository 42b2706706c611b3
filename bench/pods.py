"""Do for Pods what nodes do, on a control plane that has none.

Pods become ready, those of Jobs succeed, and commands in Pods succeed.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import aiohttp
from aiohttp import web

from bench.api import POD, Api, Json
from bench.recorder import RequestRecorder

_POLL_SECONDS = 0.5
_START = timedelta(seconds=3)
"""From the creation of a Pod until its containers are ready."""
_ADDRESS = "10.254.0.{}"
_READY = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
_PROTOCOL = "v4.channel.k8s.io"
_STANDARD_OUTPUT, _RESULT = 1, 3
"""Channels of the protocol."""


class PodProxy(RequestRecorder):
    """A reverse proxy of the API server, which answers `exec` itself."""

    def __init__(self, api: Api, output: str) -> None:
        """Commands succeed, and print `output`."""
        super().__init__(api, tls=True)
        self._output = output.encode()

    async def _relay(
        self, session: aiohttp.ClientSession, request: web.BaseRequest
    ) -> web.StreamResponse:
        if not request.path.endswith("/exec") or request.headers.get("Upgrade") != "websocket":
            return await super()._relay(session, request)
        response = web.WebSocketResponse(protocols=(_PROTOCOL,))
        await response.prepare(request)
        if self._output:
            await response.send_bytes(bytes([_STANDARD_OUTPUT]) + self._output)
        result = json.dumps({"metadata": {}, "status": "Success"}).encode()
        await response.send_bytes(bytes([_RESULT]) + result)
        await response.close()
        return response


@contextmanager
def ready_pods(api: Api, namespaces: list[str]) -> Iterator[None]:
    """Make the Pods of some namespaces ready as long as the block runs.

    The list may grow meanwhile.
    """
    over = threading.Event()

    def work() -> None:
        number = 0
        while not over.wait(_POLL_SECONDS):
            now = datetime.now(UTC)
            for namespace in list(namespaces):
                for pod in api.list(POD, namespace):
                    if status := next_status(pod, now, _ADDRESS.format(1 + number % 250)):
                        number += 1
                        name = pod["metadata"]["name"]
                        api.merge_status(POD, namespace, name, status, missing_ok=True)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def next_status(pod: Json, now: datetime, address: str) -> Json | None:
    """Return the status that a Pod gets now; None if it stays as it is. Pure."""
    metadata = pod["metadata"]
    created = datetime.fromisoformat(metadata["creationTimestamp"])
    phase = pod.get("status", {}).get("phase")
    if phase != "Pending" or metadata.get("deletionTimestamp") or now - created < _START:
        return None
    time = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    is_job = any(owner["kind"] == "Job" for owner in metadata.get("ownerReferences") or ())
    ended = {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": time}}
    state = ended if is_job else {"running": {"startedAt": time}}
    spec = pod["spec"]
    return {
        "phase": "Succeeded" if is_job else "Running",
        "startTime": time,
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": [
            {
                "type": name,
                "status": "False" if is_job and name.endswith("Ready") else "True",
                "lastTransitionTime": time,
            }
            for name in _READY
        ],
        "initContainerStatuses": [
            _container(each, ended, is_ready=True) for each in spec.get("initContainers") or ()
        ],
        "containerStatuses": [
            _container(each, state, is_ready=not is_job) for each in spec["containers"]
        ],
    }


def _container(container: Json, state: Json, *, is_ready: bool) -> Json:
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": container["image"],
        "ready": is_ready,
        "started": is_ready,
        "restartCount": 0,
        "state": state,
    }
