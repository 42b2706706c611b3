"""When another operator that writes the same conditions is noticed, and what is not one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from operator_runner.core.model import GVK, Json, ObjectRef
from operator_runner.core.resource_states import ResourceStates
from operator_runner.reconcile.other_writers import OtherWriter, OtherWriters

FOO = GVK("example.com", "v1", "Foo")
START = datetime(2026, 1, 1, tzinfo=UTC)
OVERLAP = 60
"""Seconds: 30 for the update, and those of the graceful shutdown."""


class Process:
    """One operator that reads and writes resources at seconds after its start."""

    def __init__(self) -> None:
        self.now, self.states = START, ResourceStates()
        self.writers = OtherWriters(lambda: self.now, timedelta(seconds=30), self.states)
        self.writers.read(resource(0))

    def sees(self, *seconds: int, **how: Any) -> OtherWriter | None:
        """Read writes of another process; return what is noticed at the end."""
        for second in seconds:
            self.writers.read(resource(second, **how))
        return self.writers.take(FOO)


def resource(
    second: int, uid: str = "1", version: str = "v1", manager: str = "other", fields: Any = None
) -> Json:
    """Return a resource whose conditions were written at this second."""
    time = (START + timedelta(seconds=second)).isoformat().replace("+00:00", "Z")
    entry = {
        "manager": manager,
        "time": time,
        "subresource": "status",
        "fieldsV1": {"f:status": {"f:conditions": fields or {}}},
    }
    running = {"type": "Running", "status": "True", "ansibleResult": {"completion": time}}
    return {
        "apiVersion": f"example.com/{version}",
        "kind": "Foo",
        "metadata": {"name": uid, "namespace": "default", "uid": uid, "managedFields": [entry]},
        "status": {"conditions": [running]},
    }


def test_writes_that_are_far_apart_are_from_another_operator() -> None:
    """It has the other's manager and times, and is returned once."""
    process = Process()
    assert process.sees(OVERLAP) is None
    times = START + timedelta(seconds=OVERLAP), START + timedelta(seconds=2 * OVERLAP)
    assert process.sees(2 * OVERLAP) == OtherWriter("other", *times)
    assert process.sees(3 * OVERLAP, 5 * OVERLAP) is None


def test_writes_to_several_resources_count_together() -> None:
    """An operator that is edited rarely is noticed by all of its resources, in any version."""
    process = Process()
    process.writers.read(resource(1, uid="2"))
    assert process.sees(OVERLAP) is None
    assert process.sees(2 * OVERLAP, uid="2", version="v2") is not None


def test_an_old_pod_is_not_another_operator() -> None:
    """The new Pod of a rolling update ignores its last writes, whenever it reads them."""
    process = Process()
    process.now = START + timedelta(hours=3)
    assert process.sees(5, 20, OVERLAP - 1) is None
    assert process.sees(OVERLAP) is None


def test_a_new_pod_is_not_another_operator() -> None:
    """The old Pod reads the first writes of the new one; it ends before there are more."""
    process = Process()
    assert process.sees(*range(1000, 1000 + OVERLAP, 5)) is None


def test_two_updates_a_day_apart_are_not_another_operator() -> None:
    """A Pod that survives an update that was rolled back sees writes of the next one."""
    process = Process()
    assert process.sees(1000, 1000 + 24 * 3600 + 1) is None
    assert process.sees(1000 + 24 * 3600 + 1 + OVERLAP) is not None


def test_own_writes_are_not_those_of_another_writer() -> None:
    """What was written by this process, or may have been, is the new state."""
    process = Process()
    for second in (OVERLAP, 2 * OVERLAP, 3 * OVERLAP):
        process.writers.record_own_write(resource(second))
        assert process.sees(second) is None
    for second in (4 * OVERLAP, 5 * OVERLAP):
        process.writers.forget("1")
        assert process.sees(second) is None


def test_what_is_known_ends_with_the_state_of_the_resource() -> None:
    """Another replica may have written the conditions before the resource comes back."""
    process = Process()
    process.writers.record_own_write(resource(OVERLAP))
    process.states.pop(ObjectRef(FOO, "default", "1"))
    assert process.sees(2 * OVERLAP) is None
    process.states.pop(ObjectRef(FOO, "default", "1"))
    assert process.sees(4 * OVERLAP) is None


def test_other_conditions_are_free() -> None:
    """A role or a controller writes its own types, and other fields of the status."""
    process = Process()
    for second in (OVERLAP, 2 * OVERLAP):
        body = resource(0)
        body["status"]["conditions"].append({"type": "Degraded", "status": str(second)})
        body["status"]["size"] = second
        process.writers.read(body)
    assert process.writers.take(FOO) is None


def test_conditions_that_are_owned_by_type() -> None:
    """With a list of conditions by type, the time is that of the operator's own types."""
    process = Process()
    theirs: Json = {'k:{"type":"Degraded"}': {}, ".": {}}
    for second in (OVERLAP, 2 * OVERLAP):
        body = resource(second, fields={'k:{"type":"Running"}': {}})
        later = resource(9999, manager="later", fields=theirs)["metadata"]["managedFields"]
        body["metadata"]["managedFields"] += later
        process.writers.read(body)
    found = process.writers.take(FOO)
    assert found is not None
    assert (found.manager, found.last) == ("other", START + timedelta(seconds=2 * OVERLAP))


@pytest.mark.parametrize("managed", [None, [], [{}], [{"time": "2026-01-01T00:00:00Z"}]])
def test_without_managed_fields_the_time_is_that_of_the_reading(managed: Any) -> None:
    """Servers and clients may leave them out."""
    process = Process()
    for hours in (1, 2):
        process.now = START + timedelta(hours=hours)
        body = resource(hours)
        body["metadata"]["managedFields"] = managed
        process.writers.read(body)
    found = process.writers.take(FOO)
    assert found is not None
    assert found.manager == "unknown"
