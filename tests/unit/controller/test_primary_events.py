"""Which events of a primary resource matter."""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from operator_runner.controller.predicates.primary_events import (
    SeenResource,
    SeenResources,
    reconcile_cause,
)
from operator_runner.controller.sources.primary import PrimaryWatcher
from operator_runner.core.model import (
    GVK,
    Cause,
    Deselection,
    Json,
    ObjectRef,
    RunContent,
    Trigger,
    Watch,
)
from operator_runner.reconcile.annotations import (
    DRIFT_ANNOTATION,
    HANDLED_ANNOTATION,
    REQUEST_ANNOTATION,
    SUSPEND_ANNOTATION,
)
from operator_runner.reconcile.decide import has_change

FOO = GVK("example.com", "v1", "Foo")
WATCH = Watch(FOO, RunContent(role=Path("/roles/foo")))
MARK = "example.com/chosen"
DESELECTING = replace(
    WATCH,
    deselection=Deselection(MARK, None, {"state": "absent"}),
    watch_annotations_changes=True,
)
ANNOTATED = Watch(FOO, RunContent(role=Path("/roles/foo")), watch_annotations_changes=True)


def seen(
    *,
    selected: bool = True,
    deselected: bool = False,
    desired: Json | None = None,
    **metadata: Any,
) -> SeenResource:
    body = {"metadata": {"uid": "u1", "generation": 1, "resourceVersion": "5"} | metadata}
    body |= desired or {}
    return SeenResource.of(body, selected=selected, deselected=deselected, ignored=MARK)


def bare(**changed: Any) -> SeenResource:
    """Return a later state of a resource of a kind without generation."""
    return seen(generation=None, resourceVersion="6", **changed)


DESELECTED = replace(seen(selected=False, deselected=True), desired=None)


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
        (seen(selected=False), seen(), Trigger.SPEC),
        (seen(), seen(selected=False, generation=2), None),
        (None, seen(selected=False), None),
        (seen(), seen(deletionTimestamp="now", generation=2), Trigger.DELETION),
        (seen(), seen(selected=False, deletionTimestamp="now"), Trigger.DELETION),
        (seen(deletionTimestamp="now"), seen(deletionTimestamp="now"), None),
        (seen(deletionTimestamp="now"), seen(deletionTimestamp="now", labels={"a": "b"}), None),
        (seen(deletionTimestamp="now"), seen(deletionTimestamp="now", finalizers=["f"]), None),
        # The edit may correct what the clean-up fails at.
        (seen(deletionTimestamp="now"), seen(deletionTimestamp="now", generation=3), Trigger.SPEC),
        (seen(generation=None), seen(generation=None), None),
        (seen(generation=None), seen(generation=None, resourceVersion="6"), None),
        (seen(generation=None), bare(desired={"data": {"a": "b"}}), Trigger.SPEC),
        (seen(generation=None), bare(labels={"a": "b"}), Trigger.SPEC),
        (seen(generation=None), bare(annotations={"a": "b"}), Trigger.SPEC),
        (seen(generation=None), bare(managedFields=[{"time": "t"}], finalizers=["f"]), None),
    ],
)
def test_generation_creation_deletion_and_selection_start_a_reconcile(
    old: SeenResource | None, new: SeenResource, trigger: Trigger | None
) -> None:
    """Generation, creation, deletion and selection count; status and labels do not."""
    cause = reconcile_cause(old, new, WATCH, listed=False)
    assert (cause.trigger if cause else None) == trigger


@pytest.mark.parametrize(
    ("old", "new", "cause"),
    [
        (seen(), seen(annotations={SUSPEND_ANNOTATION: "true"}), "annotation: suspended"),
        (seen(annotations={SUSPEND_ANNOTATION: "true"}), seen(), "annotation: resumed"),
        (seen(), seen(annotations={REQUEST_ANNOTATION: "1"}), "annotation: run requested"),
        (seen(), seen(annotations={HANDLED_ANNOTATION: "{}"}), None),
        (seen(generation=None), bare(annotations={HANDLED_ANNOTATION: "{}"}), None),
        # As a Deployment, whose annotations have generations too.
        (seen(), seen(annotations={HANDLED_ANNOTATION: "{}"}, generation=2), None),
        (
            seen(annotations={SUSPEND_ANNOTATION: "true"}, deletionTimestamp="now"),
            seen(deletionTimestamp="now"),
            "annotation: resumed",
        ),
        (
            seen(selected=False),
            seen(selected=False, annotations={REQUEST_ANNOTATION: "1"}),
            None,
        ),
    ],
)
@pytest.mark.parametrize("watch", [WATCH, ANNOTATED])
def test_requests_of_users_count_for_every_watch(
    old: SeenResource, new: SeenResource, cause: str | None, watch: Watch
) -> None:
    """The operator's answer to a request does not, nor do requests for other resources."""
    found = reconcile_cause(old, new, watch, listed=False)
    assert (str(found) if found else None) == cause


PERIOD = "ansible.sdk.operatorframework.io/reconcile-period"


@pytest.mark.parametrize(
    ("old", "new", "is_cause"),
    [
        ({PERIOD: "soon"}, {PERIOD: "5m"}, True),
        ({PERIOD: "soon"}, {}, True),
        ({PERIOD: "soon"}, {PERIOD: "later"}, True),
        ({DRIFT_ANNOTATION: "no"}, {DRIFT_ANNOTATION: "warn"}, True),
        ({PERIOD: "soon"}, {PERIOD: "soon", "a": "b"}, False),
        ({PERIOD: "5m"}, {PERIOD: "soon"}, False),
    ],
)
def test_a_corrected_annotation_starts_a_reconcile(
    old: dict[str, str], new: dict[str, str], is_cause: bool
) -> None:
    """Of every watch: the retry of the invalid one may be 16 minutes away."""
    cause = reconcile_cause(seen(annotations=old), seen(annotations=new), WATCH, listed=False)
    assert (cause is not None and cause.trigger is Trigger.ANNOTATION) == is_cause


def test_another_annotation_beside_a_corrected_one_is_a_change_of_its_own() -> None:
    """With the policies `warn` and `ignore`, only that makes the role write."""
    old, new = seen(annotations={PERIOD: "soon"}), seen(annotations={"a": "b"})
    found = reconcile_cause(old, new, ANNOTATED, listed=False)
    assert found is not None
    assert has_change([found])


def test_an_edit_beside_an_answer_is_not_lost() -> None:
    """One event may have both; without a digest the generation counts."""
    old = SeenResource.of({"metadata": {"uid": "u1", "generation": 1}}, selected=True)
    metadata = {"uid": "u1", "generation": 2, "annotations": {HANDLED_ANNOTATION: "{}"}}
    new = SeenResource.of({"metadata": metadata, "spec": {"a": 1}}, selected=True)
    assert str(reconcile_cause(old, new, WATCH, listed=False)) == "spec: spec"


def test_annotations_count_if_the_watch_enables_it() -> None:
    """With watchAnnotationsChanges the changed keys are named, never their values."""
    new = seen(annotations={"kept": "1", "new": "secret"})
    cause = reconcile_cause(
        seen(annotations={"kept": "1", "old": "x"}), new, ANNOTATED, listed=False
    )
    assert str(cause) == "annotation: new, old"


@pytest.mark.parametrize(
    ("old", "new", "listed", "cause"),
    [
        (seen(), DESELECTED, False, "spec: no longer matches selector and when"),
        (seen(), replace(DESELECTED, generation=2), False, "spec: no longer matches selector"),
        (None, DESELECTED, True, "start: no longer matches selector and when"),
        (None, DESELECTED, False, "spec: no longer matches selector and when"),
        (DESELECTED, DESELECTED, False, None),
        (DESELECTED, replace(DESELECTED, generation=2), False, "spec: generation 1 to 2"),
        (DESELECTED, seen(selected=False), False, None),
        (DESELECTED, seen(), False, "spec: now matches selector and when"),
        (seen(), seen(selected=False), False, None),
        (seen(), seen(annotations={MARK: "true"}), False, None),
        (seen(generation=None), bare(annotations={MARK: "true"}), False, None),
        (bare(annotations={MARK: "true"}), seen(generation=None), False, None),
        # As a Deployment, whose annotations have generations too.
        (seen(), seen(annotations={MARK: "true"}, generation=2), False, None),
        (seen(annotations={MARK: "true"}), seen(generation=2), False, None),
        (seen(), seen(annotations={MARK: "true", "a": "b"}, generation=2), False, "spec: gen"),
        (
            seen(),
            seen(annotations={MARK: "true"}, generation=2, desired={"spec": {"a": 1}}),
            False,
            "spec: spec",
        ),
        (DESELECTED, replace(DESELECTED, deleting=True), False, "deletion: deletionTimestamp set"),
    ],
)
def test_the_end_of_the_choice_is_a_cause_where_something_has_to_run(
    old: SeenResource | None, new: SeenResource, listed: bool, cause: str | None
) -> None:
    """At the event and at the start; the annotation that the runner writes does not count."""
    found = reconcile_cause(old, new, DESELECTING, listed=listed)
    assert str(found).startswith(cause) if cause else found is None


def test_a_change_of_the_spec_is_described_by_its_paths() -> None:
    """Each field that differs is named; where the old spec was dropped, the generations are."""
    old = seen(desired={"spec": {"replicas": 1, "ports": [{"port": 80}], "old": 1}})
    spec = {"replicas": 2, "ports": [{"port": 81}], "new": {"a": 1}}
    new = seen(desired={"spec": spec}, generation=2)
    cause = reconcile_cause(old, new, WATCH, listed=False)
    assert str(cause) == "spec: spec.replicas, spec.ports[0].port, spec.old, spec.new"
    forgotten = reconcile_cause(replace(old, desired=None), new, WATCH, listed=False)
    assert str(forgotten) == "spec: generation 1 to 2"


def test_a_kind_without_generation_is_compared_although_its_old_data_was_dropped() -> None:
    """A heartbeat in the status of a Node is not a change of its spec."""
    old = seen(generation=None, desired={"data": {"a": "b"}, "status": {"at": 1}})
    old = replace(old, desired=None)
    heartbeat = bare(desired={"data": {"a": "b"}, "status": {"at": 2}})
    assert reconcile_cause(old, heartbeat, WATCH, listed=False) is None
    edited = bare(desired={"data": {"a": "c"}, "status": {"at": 2}})
    assert str(reconcile_cause(old, edited, WATCH, listed=False)) == "spec: resourceVersion 6"


def test_specs_are_remembered_within_a_bound() -> None:
    """The least recently used spec is evicted first, and a deleted resource leaves nothing."""
    first, second = (ObjectRef(FOO, "n", name) for name in "ab")
    big = seen(desired={"spec": {"text": secrets.token_hex(500)}})
    assert big.desired is not None
    remembered = SeenResources(limit=len(big.desired) + 10)
    remembered.put(first, big)
    remembered.put(second, big)
    assert [ref for ref, each in remembered.items() if each.desired] == [second]
    remembered.drop(second)
    remembered.put(first, big)
    assert remembered.get(first) == big
    assert remembered.get(second) is None


def test_a_listed_resource_is_distinguished_from_a_created_one() -> None:
    """A listed resource is a start, so that edits run first."""
    assert reconcile_cause(None, seen(), WATCH, listed=True) == Cause(Trigger.START)
    assert reconcile_cause(seen(), seen(), WATCH, listed=True) is None


def test_a_deletion_is_enqueued_and_the_state_discarded() -> None:
    """After DELETED the resource is reconciled once more, and a new one of its name is new."""
    enqueued: list[tuple[ObjectRef, Cause]] = []
    met: list[ObjectRef] = []
    watcher = PrimaryWatcher(
        [WATCH],
        lambda ref, cause: enqueued.append((ref, cause)),
        lambda ref, _: met.append(ref),
        seen_resources := SeenResources(),
    )
    body: Json = {"metadata": {"name": "a", "namespace": "n", "uid": "u", "generation": 1}}
    ref = ObjectRef(FOO, "n", "a")
    watcher.on_event(WATCH, None, body)
    watcher.on_event(WATCH, "MODIFIED", body)
    assert seen_resources.of_kind(FOO) == [ref]
    watcher.on_event(WATCH, "DELETED", body)
    assert seen_resources.of_kind(FOO) == []
    watcher.on_event(WATCH, "ADDED", body)
    assert [cause.trigger for _, cause in enqueued] == [
        Trigger.START,
        Trigger.DELETION,
        Trigger.SPEC,
    ]
    assert {enqueued_ref for enqueued_ref, _ in enqueued} == {ref}
    assert met == [ref, ref]
