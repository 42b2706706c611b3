"""Runs that survive a new Pod of the operator, in ConfigMaps of a real API server."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from operator_runner.core.errors import Unavailable
from operator_runner.core.fencing import UNFENCED, Fence
from operator_runner.core.model import GVK, ObjectRef, RunOutcome, Stats
from operator_runner.kube.api import Api
from operator_runner.kube.run_archive import RUNS, RunArchive, bucket_of
from operator_runner.kube.session import connect
from operator_runner.telemetry.runs.store import RunStore
from tests.support.kubectl import Kubectl

REF = ObjectRef(GVK("example.com", "v1", "Page"), "default", "home")
UID = "5cf0d8a4-6b07-4c3c-9f0e-2a8f4f1f6f10"


@pytest.fixture
async def api(control_plane: Path) -> AsyncIterator[Api]:
    """Connect as the operator does."""
    connection = await connect(control_plane, user_agent="operator-runner/test")
    yield Api(connection)
    await connection.close()


async def opened(
    api: Api, namespace: str, fence: Callable[[], Fence] = lambda: UNFENCED
) -> tuple[RunStore, RunArchive]:
    """Start as a new Pod does."""
    store = RunStore()
    archive = RunArchive(api, namespace, "pages", store, fence)
    store.on_finished(archive.finished)
    store.on_deleted(archive.deleted)
    assert await archive.start()
    return store, archive


def add_run(store: RunStore, number: int) -> None:
    store.started(REF, UID, f"run{number}", ())
    store.ended(f"run{number}", RunOutcome(Stats(ok=1, changed=1)))


async def test_the_last_runs_of_a_resource_survive_a_new_pod(
    api: Api, kubectl: Kubectl, namespace: str
) -> None:
    """Written by one, read by the next one, and removed with the resource."""
    store, archive = await opened(api, namespace)
    for number in range(RUNS + 2):
        add_run(store, number)
    await archive.flush()

    store, archive = await opened(api, namespace)
    found = store.summaries(lambda _: True, 100)
    assert sorted(each["id"] for each in found) == [f"run{number}" for number in (2, 3, 4)]
    add_run(store, 5)
    await archive.flush()
    store, archive = await opened(api, namespace)
    assert [each["id"] for each in store.last(REF, UID, 9)] == ["run3", "run4", "run5"]

    store.forget(REF)
    await archive.flush()
    kept = kubectl.get("configmap", f"pages-runs-{bucket_of(UID)}")
    assert kept is not None
    assert UID not in kept.get("binaryData", {})


async def test_content_that_others_have_written_is_ignored(
    api: Api, kubectl: Kubectl, namespace: str
) -> None:
    """A ConfigMap can be edited; the operator starts, and writes the runs of the resource."""
    resource = {"apiVersion": "example.com/v1", "kind": "Page", "name": "home", "uid": UID}
    run = {"id": "1", "resource": resource, "outcome": "failed", "started": "2026-01-01T12:00:00Z"}
    forged = zlib.compress(json.dumps([{**run, "changes": [1]}]).encode())
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"pages-runs-{bucket_of(UID)}"},
        "binaryData": {
            "a": "bm90IHppcHBlZA==",
            "b": "",
            UID: base64.b64encode(forged).decode(),
        },
    }
    kubectl("apply", "--filename=-", input_=json.dumps(body))
    store, archive = await opened(api, namespace)
    assert store.summaries(lambda _: True, 100) == []
    add_run(store, 1)
    await archive.flush()
    store, _ = await opened(api, namespace)
    assert [each["id"] for each in store.last(REF, UID, 9)] == ["run1"]


async def test_runs_that_could_not_be_written_are_written_the_next_time(
    api: Api, namespace: str
) -> None:
    """An API server that does not answer loses no run, and no error ends the archive."""
    errors: list[Exception] = [Unavailable("no answer"), ValueError("a mistake")]

    def fence() -> Fence:
        if errors:
            raise errors.pop(0)
        return UNFENCED

    store, archive = await opened(api, namespace, fence)
    add_run(store, 1)
    await archive.flush()
    await archive.flush()
    assert not errors
    add_run(store, 2)
    await archive.stop()
    store, _ = await opened(api, namespace)
    assert [each["id"] for each in store.last(REF, UID, 9)] == ["run1", "run2"]
