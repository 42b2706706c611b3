"""Runs that survive a new Pod of the operator, in ConfigMaps of a real API server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

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


async def opened(api: Api, namespace: str) -> tuple[RunStore, RunArchive]:
    """Start as a new Pod does."""
    store = RunStore()
    archive = RunArchive(api, namespace, "pages", store)
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
    """A ConfigMap can be edited; the operator starts nevertheless."""
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "pages-runs-0"},
        "binaryData": {"a": "bm90IHppcHBlZA==", UID: ""},
    }
    kubectl("apply", "--filename=-", input_=json.dumps(body))
    store, _ = await opened(api, namespace)
    assert store.summaries(lambda _: True, 100) == []
