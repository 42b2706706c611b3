"""Which fields differ, and which a manager has set."""

from __future__ import annotations

import json
from typing import Any

import pytest

from operator_runner.controller.predicates.dependent_changes import Version, difference
from operator_runner.core.model import Json
from operator_runner.core.object_diff import changed_paths, is_cut, managed_paths, summarize


@pytest.mark.parametrize(
    ("old", "new", "paths"),
    [
        ({"spec": {"a": 1}}, {"spec": {"a": 1}}, []),
        ({"spec": {"a": 1}}, {"spec": {"a": 2}}, ["spec.a"]),
        ({"spec": {"a": 1}}, {"spec": {"a": True}}, ["spec.a"]),
        ({"spec": {}}, {"spec": {"a": {"b": 1}}}, ["spec.a"]),
        ({"spec": {"a": 1}}, {}, ["spec"]),
        ({"spec": [1, {"p": 2}]}, {"spec": [1, {"p": 3}, 4]}, ["spec[1].p", "spec[2]"]),
        ({"spec": [1, 2]}, {"spec": [2]}, ["spec[0]", "spec[1]"]),
        ({"spec": {"a": None}}, {"spec": {"a": {}}}, ["spec.a"]),
    ],
)
def test_fields_that_differ_are_named(old: Json, new: Json, paths: list[str]) -> None:
    """Maps are compared by key and lists by index; added and removed values have one path."""
    assert list(changed_paths(old, new)) == paths


def test_fields_of_a_manager_are_read_from_its_field_set() -> None:
    """Keys of lists of objects are shown, values of plain lists are not."""
    port: Json = {".": {}, "f:port": {}}
    fields = {
        "f:metadata": {"f:labels": {".": {}, "f:app.kubernetes.io/name": {}}},
        "f:spec": {"f:ports": {'k:{"port":80,"protocol":"TCP"}': port}, "f:x": {'v:"s"': {}}},
    }
    assert list(managed_paths(fields)) == [
        "metadata.labels.app.kubernetes.io/name",
        "spec.ports[port=80,protocol=TCP].port",
        "spec.x[]",
    ]


def test_many_paths_are_counted() -> None:
    """A line stays a line."""
    assert (
        summarize([f"spec.{name}" for name in "abcdef"])
        == "spec.a, spec.b, spec.c, spec.d and 2 more"
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"n" * 100_000: {"a": 1, "b": 1}}, {"n" * 100_000: {"a": 2, "b": 2}}),
        ({"a" * 300: {"b" * 300: {"c": {"d": 1}}}}, {"a" * 300: {"b" * 300: {"c": {"d": 2}}}}),
        ({"n" * 100_000: [1]}, {"n" * 100_000: [2]}),
    ],
)
def test_long_paths_are_cut(old: Json, new: Json) -> None:
    """So 30,000 fields below a name of a megabyte do not need 30 GB."""
    managed = json.loads(json.dumps(new).replace('{"', '{"f:').replace(', "', ', "f:'))
    for paths in (list(changed_paths(old, new)), list(managed_paths(_emptied(managed)))):
        assert paths
        assert all(is_cut(path) and len(path) < 1000 for path in paths)


def _emptied(fields: Any) -> Json:
    return {
        key: _emptied(value) if isinstance(value, dict) else {} for key, value in fields.items()
    }


@pytest.mark.timeout(60)
def test_an_edit_of_an_object_with_many_fields_is_described_at_once() -> None:
    """Anyone who can write a dependent selects their number; each with each took minutes."""
    fields: Json = {f"f:key{number}": {} for number in range(20_000)}
    old = version(1, entry("kubectl", "t1", {"f:data": fields}), generation=0)
    more = {"f:data": {**fields, "f:new": {}}}

    new = version(2, entry("kubectl", "t2", more), generation=0)

    assert difference(old, new) == "changed by kubectl (data.new)"


def test_many_writers_are_counted() -> None:
    """The API server limits the length of their names, but not their number."""
    managers = [entry(f"m{number}", "t1", SIZE) for number in range(6)]

    text = difference(version(1), version(2, *managers, generation=2))

    assert text == "changed by m0, m1, m2, m3 and 2 more (spec.size)"


def version(number: int, *managed: Json, **more: Any) -> Version:
    known = {"uid": "u", "resourceVersion": str(number), "generation": 1}
    return Version.of(known | {"managedFields": list(managed)} | more)


def entry(manager: str, time: str, fields: Json, **more: str) -> Json:
    return {"manager": manager, "operation": "Update", "time": time, "fieldsV1": fields, **more}


SIZE: Json = {"f:spec": {"f:size": {}}}
IMAGE: Json = {"f:spec": {"f:size": {}, "f:image": {}}}
READY: Json = {"f:status": {"f:ready": {}}}
ONE = {"rev": "1"}
REV: Json = {"f:metadata": {"f:annotations": {".": {}, "f:rev": {}}}}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            version(1, entry("role", "t1", SIZE)),
            version(2, entry("hpa", "t2", SIZE), generation=2),
            "changed by hpa (spec.size)",
        ),
        (
            version(1, entry("hpa", "t1", SIZE)),
            version(2, entry("hpa", "t2", IMAGE), generation=2),
            "changed by hpa (spec.image)",
        ),
        (
            version(1, entry("hpa", "t1", IMAGE)),
            version(2, entry("hpa", "t2", IMAGE), generation=2),
            "changed by hpa (spec.image, spec.size)",
        ),
        (
            version(1, entry("role", "t1", IMAGE)),
            version(
                2,
                entry("role", "t1", {"f:spec": {".": {}}}),
                entry("hpa", "t2", IMAGE),
                generation=2,
            ),
            "changed by hpa (spec.image, spec.size)",
        ),
        (
            version(1, labels={"a": "1"}),
            version(2, entry("kubectl-label", "t2", {}), labels={"a": "2", "b": "3"}),
            "changed by kubectl-label (metadata.labels.a, metadata.labels.b)",
        ),
        (
            version(1, entry("d", "t1", READY | REV, subresource="status"), annotations=ONE),
            version(
                2,
                entry("d", "t1", READY, subresource="status"),
                entry("kubectl", "t1", REV),
                annotations={"rev": "2"},
            ),
            "changed by kubectl (metadata.annotations.rev)",
        ),
    ],
)
def test_writers_and_their_fields_are_reported(old: Version, new: Version, expected: str) -> None:
    """Fields that the writer gained, else all that it manages; labels by their own difference."""
    assert difference(old, new) == expected


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (version(1, entry("a", "t1", SIZE)), version(2, entry("a", "t2", SIZE))),
        (version(1, entry("a", "t1", SIZE)), version(2, entry("b", "t2", SIZE))),
        (
            version(1, entry("d", "t1", READY, subresource="status")),
            version(2, entry("d", "t2", READY | REV, subresource="status"), annotations=ONE),
        ),
        (
            version(1, entry("role", "t1", SIZE)),
            version(
                2,
                entry("role", "t1", SIZE),
                entry("d", "t1", READY | REV, subresource="status"),
                annotations=ONE,
            ),
        ),
        (
            version(1, entry("role", "t1", SIZE), generation=0),
            version(
                2,
                entry("role", "t1", SIZE),
                entry("d", "t1", READY, subresource="status"),
                generation=0,
            ),
        ),
        (
            version(1, entry("d", "t2", READY, subresource="status"), generation=0),
            version(2, entry("d", "t2", READY, subresource="status"), generation=0),
        ),
        (
            version(1, annotations={}),
            version(2, annotations={"kubectl.kubernetes.io/last-applied-configuration": "x"}),
        ),
    ],
)
def test_bookkeeping_fields_are_not_changes(old: Version, new: Version) -> None:
    """Times and owners of managedFields, statuses, and kubectl's copy are not changes."""
    assert difference(old, new) == ""
