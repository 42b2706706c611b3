"""Which events of a primary resource matter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from operator_runner.model import GVK, Cause, Json, ObjectRef, Playbook, Trigger, Watch
from operator_runner.triggers.predicate import Seen, judge
from operator_runner.triggers.primary import PrimaryWatcher

FOO = GVK("example.com", "v1", "Foo")
WATCH = Watch(FOO, Playbook(role=Path("/roles/foo")))
ANNOTATED = Watch(FOO, Playbook(role=Path("/roles/foo")), watch_annotations_changes=True)


def seen(*, relevant: bool = True, **metadata: Any) -> Seen:
    body = {"metadata": {"uid": "u1", "generation": 1, "resourceVersion": "5"} | metadata}
    return Seen.of(body, relevant=relevant)


@pytest.mark.parametrize(
    ("old", "new", "trigger"),
    [
        (None, seen(), Trigger.SPEC),
        (seen(), seen(), None),
        (seen(), seen(generation=2), Trigger.SPEC),
        (seen(), seen(resourceVersion="6"), None),
        (seen(), seen(labels={"a": "b"}), None),
        (seen(), seen(annotations={"a": "b"}), None),
        (seen(), seen(uid="u2"), Trigger.SPEC),
        (seen(relevant=False), seen(), Trigger.SPEC),
        (seen(), seen(relevant=False, generation=2), None),
        (None, seen(relevant=False), None),
        (seen(), seen(deletionTimestamp="now", generation=2), Trigger.DELETION),
        (seen(), seen(relevant=False, deletionTimestamp="now"), Trigger.DELETION),
        (seen(deletionTimestamp="now"), seen(deletionTimestamp="now", generation=3), None),
        (seen(generation=None), seen(generation=None), None),
        (seen(generation=None), seen(generation=None, resourceVersion="6"), Trigger.SPEC),
    ],
)
def test_what_wakes_a_reconcile(old: Seen | None, new: Seen, trigger: Trigger | None) -> None:
    """Generation, creation, deletion and selection count; status and labels do not."""
    cause = judge(old, new, WATCH, listed=False)
    assert (cause.trigger if cause else None) == trigger


def test_annotations_count_where_the_watch_asks_for_them() -> None:
    """With watchAnnotationsChanges the changed keys are named, never their values."""
    new = seen(annotations={"kept": "1", "new": "secret"})
    cause = judge(seen(annotations={"kept": "1", "old": "x"}), new, ANNOTATED, listed=False)
    assert cause == Cause(Trigger.ANNOTATION, "new, old")


def test_what_is_found_at_start_is_told_from_what_is_created() -> None:
    """A listed resource is a start, so that edits can overtake the herd."""
    assert judge(None, seen(), WATCH, listed=True) == Cause(Trigger.START)
    assert judge(seen(), seen(), WATCH, listed=True) is None


def test_a_deletion_is_told_and_the_resource_forgotten() -> None:
    """After DELETED the resource is asked for once more and a new one of its name is new."""
    told: list[tuple[ObjectRef, Cause]] = []
    met: list[ObjectRef] = []
    watcher = PrimaryWatcher(
        [WATCH],
        lambda *_: True,
        lambda ref, cause: told.append((ref, cause)),
        lambda ref, _: met.append(ref),
    )
    body: Json = {"metadata": {"name": "a", "namespace": "n", "uid": "u", "generation": 1}}
    ref = ObjectRef(FOO, "n", "a")
    watcher.deliver(WATCH, None, body)
    watcher.deliver(WATCH, "MODIFIED", body)
    assert list(watcher.known(FOO)) == [ref]
    watcher.deliver(WATCH, "DELETED", body)
    assert list(watcher.known(FOO)) == []
    watcher.deliver(WATCH, "ADDED", body)
    assert [cause.trigger for _, cause in told] == [
        Trigger.START,
        Trigger.DELETION,
        Trigger.SPEC,
    ]
    assert {told_ref for told_ref, _ in told} == {ref}
    assert met == [ref, ref]
