"""Fields of the status are written with the conditions, in one patch and only where they differ."""

from __future__ import annotations

import copy
from datetime import UTC, datetime, timedelta

from operator_runner.core.model import Json, uid_of
from operator_runner.core.resource_states import ResourceStates
from operator_runner.reconcile.other_writers import OtherWriters
from operator_runner.reconcile.status import StatusWriter
from tests.fakes.cluster import FakeCluster
from tests.unit.reconcile.test_reconciler import REF, resource

CONDITION = {"type": "Ready", "status": "True"}
NOW = datetime(2026, 1, 1, tzinfo=UTC)


async def write(cluster: FakeCluster, fields: Json | None) -> Json:
    """Write the fields and one condition."""
    writer = StatusWriter(cluster, OtherWriters(lambda: NOW, timedelta(), ResourceStates()))
    uid = uid_of(cluster.objects[REF])
    written = await writer.write(REF, uid, lambda _: [CONDITION], fields=fields)
    assert written is not None
    return written


async def test_a_map_replaces_the_former_map() -> None:
    """Keys that are gone are removed, and fields of others are kept, in one write."""
    cluster = FakeCluster(
        resource() | {"status": {"members": {"a": 1, "b": 2}, "phase": "Old", "mine": 1}}
    )
    written = await write(cluster, {"members": {"b": 2, "c": 3}, "phase": None})
    assert written["status"] == {"conditions": [CONDITION], "members": {"b": 2, "c": 3}, "mine": 1}
    assert written["metadata"]["resourceVersion"] == "2"


async def test_equal_fields_are_not_written() -> None:
    """Without a difference there is no write, with one field that differs there is one."""
    status = {"conditions": [CONDITION], "members": {"a": 1}, "phase": "Fine"}
    cluster = FakeCluster(resource() | {"status": copy.deepcopy(status)})
    for same in ({"members": {"a": 1}, "phase": "Fine", "gone": None}, None):
        assert (await write(cluster, same))["metadata"]["resourceVersion"] == "1"
    written = await write(cluster, {"members": {"a": 1}, "phase": "Bad"})
    assert written["status"] == status | {"phase": "Bad"}
    assert written["metadata"]["resourceVersion"] == "2"
