"""Fields that a write changes, and their records."""

from __future__ import annotations

from typing import Any

import pytest

from operator_runner.core.model import GVK, Json, ObjectRef
from operator_runner.proxy.field_changes import MAX_CHANGES, SeenObjects, field_changes

MAP = ObjectRef(GVK("", "v1", "ConfigMap"), "default", "a")


def config_map(metadata: Any = None, **data: str) -> Json:
    known = {"name": "a", "resourceVersion": "1", "managedFields": [{"manager": "x"}]}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": known | (metadata or {}),
        "data": data,
    }


def paths(before: Json, after: Json) -> list[str]:
    return [change.path for change in field_changes(MAP, before, after, 0)]


def test_changed_added_and_removed_fields_are_found() -> None:
    """The digest of a field that an object does not have is empty."""
    changes = field_changes(MAP, config_map(a="1", b="2"), config_map(a="2", c="3"), 7.0)
    assert [change.path for change in changes] == ["data.a", "data.b", "data.c"]
    changed, removed, added = changes
    assert changed.before != changed.after
    assert (removed.after, added.before) == (b"", b"")
    assert {change.at for change in changes} == {7.0}


def test_equal_values_have_equal_digests() -> None:
    """The result of one write is compared with that of the next one."""
    (first,) = field_changes(MAP, config_map(a="1"), config_map(a="2"), 0)
    (second,) = field_changes(MAP, config_map(a="2"), config_map(a="1"), 0)
    assert (first.before, first.after) == (second.after, second.before)


def test_values_are_not_kept() -> None:
    """Digests have one length, and their key differs from process to process."""
    (change,) = field_changes(MAP, config_map(a="x"), config_map(a="secret" * 1000), 0)
    assert "secret" not in repr(change)
    assert len(change.before) == len(change.after) == 8


def test_the_value_of_a_field_with_a_cut_path_is_not_shown() -> None:
    """The name that would mark it as a secret is missing."""
    outer, inner = "a" * 300, "b" * 300
    before, after = ({outer: {inner: {"password": text}}} for text in ("old", "new"))
    ref = ObjectRef(GVK("example.com", "v1", "Foo"), "default", "a")

    (change,) = field_changes(ref, {"spec": before}, {"spec": after}, 0)

    assert (change.old, change.new) == (None, None)


@pytest.mark.parametrize(
    "metadata",
    [
        {"resourceVersion": "2"},
        {"generation": 2},
        {"managedFields": []},
        {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}},
    ],
)
def test_fields_of_the_server_and_kubectl_are_not_compared(metadata: Json) -> None:
    """Versions, managers and the copy of a client-side apply change with other fields."""
    before = config_map({"annotations": {}})
    assert paths(before, config_map({"annotations": {}} | metadata)) == []
    assert paths(before | {"status": {"a": 1}}, before) == []


def test_labels_annotations_and_owners_are_compared() -> None:
    """Their paths begin with `metadata`."""
    assert paths(config_map({"labels": {"a": "1"}}), config_map({"labels": {"a": "2"}})) == [
        "metadata.labels.a"
    ]


def test_the_number_and_length_of_paths_is_bounded() -> None:
    """An object with many keys does not fill the memory."""
    many = {f"{number}": "1" for number in range(100)}
    assert len(paths(config_map(), config_map() | {"data": many, "x": 1})) <= MAX_CHANGES
    assert len(paths(config_map(), config_map(**{"k" * 5000: "1"}))[0]) <= 200
    assert len(paths(config_map(**many), config_map(**dict.fromkeys(many, "2")))) == MAX_CHANGES


def test_a_write_is_compared_with_the_last_content() -> None:
    """An equal resourceVersion means that nothing changed; the first content has no predecessor."""
    seen = SeenObjects()
    assert seen.replace(MAP, "1", b"one") is None
    assert seen.replace(MAP, "1", b"one") is None
    assert seen.replace(MAP, "2", b"two") == b"one"
    assert seen.replace(MAP, "3", b"three") == b"two"


def test_only_the_last_objects_are_kept() -> None:
    """By number and by size, so that a run that reads much needs little memory."""
    seen = SeenObjects()
    others = [ObjectRef(MAP.gvk, "default", f"b{number}") for number in range(20)]
    seen.replace(MAP, "1", b"one")
    for other in others:
        seen.replace(other, "1", b"x")
    assert seen.replace(MAP, "2", b"two") is None
    assert seen.replace(others[-1], "2", b"y") == b"x"
    seen.replace(others[0], "1", b"x" * 3 * 1024 * 1024)
    assert seen.replace(others[0], "2", b"y") is None
    seen.replace(others[0], "2", b"y")
    assert seen.replace(others[0], "3", b"z") == b"y"


@pytest.mark.parametrize("gvk", [GVK("", "v1", "Event"), GVK("coordination.k8s.io", "v1", "Lease")])
def test_events_and_leases_are_not_compared(gvk: GVK) -> None:
    """They are written again and again on purpose."""
    seen, ref = SeenObjects(), ObjectRef(gvk, "default", "a")
    seen.replace(ref, "1", b"one")
    assert seen.replace(ref, "2", b"two") is None
