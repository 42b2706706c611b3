"""Compared fields of two states of an object, and the displayed differences."""

from __future__ import annotations

from operator_runner.core.model import Json
from operator_runner.core.object_diff import ChangeType, object_difference


def _body(kind: str = "ConfigMap", **fields: object) -> Json:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": "a", "namespace": "b"}, **fields}


def test_fields_of_the_api_server_are_not_compared() -> None:
    """Status, versions and the copy that kubectl apply keeps."""
    before, after = _body(status={"a": 1}), _body(status={"a": 2})
    last_applied = {"kubectl.kubernetes.io/last-applied-configuration": "{}"}
    after["metadata"] = {
        **after["metadata"],
        "resourceVersion": "2",
        "managedFields": [{}],
        "annotations": last_applied,
    }
    assert object_difference(before, after) is None
    assert object_difference(None, None) is None


def test_a_difference_has_the_paths_of_the_changed_fields() -> None:
    """An object that is created or deleted has no changed fields."""
    changed = object_difference(_body(data={"a": "1"}), _body(data={"a": "2", "b": "3"}))
    assert changed is not None
    assert changed.paths == ("data.a", "data.b")
    assert str(changed) == "ConfigMap b/a changed"
    created, deleted = object_difference(None, _body()), object_difference(_body(), None)
    assert created is not None
    assert (created.change, created.paths) == (ChangeType.CREATED, ())
    assert deleted is not None
    assert deleted.change is ChangeType.DELETED


def test_values_of_secrets_are_masked() -> None:
    """Equal values are the same text on both sides, others are not."""
    before = _body("Secret", data={"same": "c2FtZQ==", "other": "b25l"}, type="Opaque")
    after = _body("Secret", data={"same": "c2FtZQ==", "other": "dHdv", "new": "bmV3"})
    found = object_difference(before, after)
    assert found is not None
    assert found.before is not None
    assert found.after is not None
    assert found.before["data"] == {"same": "***", "other": "*** (before)"}
    assert found.after["data"] == {"same": "***", "other": "*** (after)", "new": "***"}


def test_events_are_not_shown() -> None:
    """They report on an object."""
    assert object_difference(None, _body("Event")) is None
