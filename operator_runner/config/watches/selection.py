"""Decide whether a watch has a resource: by version, label selector, `when` and `blockUpgrade`.

The API server serves each resource in all versions. If a file has several versions of one kind,
the version of the last write of the resource's spec decides, so that only one role reconciles it.
An object of `triggers` concerns resources that it names, or that select its labels.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

import structlog

from operator_runner.config.watches.expressions import (
    evaluate,
    is_true,
    texts_of,
    top_level_fields,
    value_of,
)
from operator_runner.config.watches.selector import selected_requirements
from operator_runner.core.labels import match_labels
from operator_runner.core.model import (
    ALL_NAMESPACES,
    LAST_APPLIED,
    TEST_ANNOTATION,
    Json,
    LabelSelectorRequirement,
    ObjectTrigger,
    TriggerTargets,
    Watch,
)

_BOOKKEEPING = {"f:metadata", "f:status"}
_APPLIED = f"f:{LAST_APPLIED}"


def with_watched_versions(watches: Sequence[Watch]) -> tuple[Watch, ...]:
    """Set the watched versions of the kind of each watch, if there is more than one."""
    by_kind: dict[tuple[str, str], list[Watch]] = defaultdict(list)
    for watch in watches:
        by_kind[watch.gvk.group, watch.gvk.kind].append(watch)
    return tuple(
        replace(
            watch,
            versions=tuple(each.gvk.version for each in others),
            finalizer_versions=tuple(
                each.gvk.version for each in others if _has_same_finalizer(each, watch)
            ),
        )
        if len(others) > 1
        else watch
        for watch in watches
        for others in [by_kind[watch.gvk.group, watch.gvk.kind]]
    )


def _has_same_finalizer(one: Watch, other: Watch) -> bool:
    if one.finalizer is None or other.finalizer is None:
        return False
    return one.finalizer.name == other.finalizer.name


def belongs_to(body: Json, watch: Watch) -> bool:
    """Return whether a resource is this watch's, and not a test's or another version's.

    A resource of a version that is not watched is the first watch's.
    """
    is_version = not watch.versions or _version_of(body, watch) == watch.gvk.version
    return is_version and not _is_of_a_test(body, watch)


def cleans_up(body: Json, watch: Watch) -> bool:
    """Return whether this watch runs its finalizer for a resource that is being deleted.

    If the watch of the resource has a finalizer of the same name, only that one does. A finalizer
    of another name is left from the time when the resource was this watch's.
    """
    is_other = bool(watch.versions) and _version_of(body, watch) not in watch.finalizer_versions
    return belongs_to(body, watch) or (is_other and not _is_of_a_test(body, watch))


def _is_of_a_test(body: Json, watch: Watch) -> bool:
    annotations = body["metadata"].get("annotations") or {}
    return TEST_ANNOTATION in annotations and not watch.for_tests


def _version_of(body: Json, watch: Watch) -> str:
    """Return the version whose watch has the resource, of several."""
    written = _written_in(body)
    return written if written in watch.versions else watch.versions[0]


def _written_in(body: Json) -> str:
    """Return the version in which something else than metadata and status was last written.

    Where there is nothing else it is the one in which the resource was made. Source: the
    Kubernetes documentation on field management; `managedFields` keeps the version of each
    manager's last write.
    """
    managed = body["metadata"].get("managedFields") or ()
    entries = [entry for entry in managed if not entry.get("subresource")]
    of_spec = [entry for entry in entries if entry.get("fieldsV1", {}).keys() - _BOOKKEEPING]
    found: Json = max(of_spec, key=_lateness, default=min(entries, key=_time, default={}))
    return str(found.get("apiVersion", "")).rpartition("/")[2]


def _lateness(entry: Json) -> tuple[str, bool, bool, str]:
    """Return the sort key of a write of the spec: its time, then its fields.

    Times have whole seconds. Of several writes in one second, the last one manages fields of the
    spec and kubectl's last-applied-configuration, which contains the version.
    """
    fields = entry["fieldsV1"]
    annotations = fields.get("f:metadata", {}).get("f:annotations", {})
    inside = (value for key, value in fields.items() if key not in _BOOKKEEPING)
    return _time(entry), _APPLIED in annotations, any(inside), str(entry.get("apiVersion"))


def _time(entry: Json) -> str:
    return entry.get("time") or ""


_log = structlog.get_logger(__name__)


def is_selected(body: Json, watch: Watch) -> bool:
    """Return whether the resource is chosen.

    If `when` cannot be evaluated, for example length() of a missing field, the result is False
    and a warning is logged.
    """
    metadata = body["metadata"]
    try:
        return belongs_to(body, watch) and _matches(body, watch)
    except ValueError as error:
        _log.warning(
            "Cannot evaluate `when` of watches.yaml; ignoring the resource",
            gvk=str(watch.gvk),
            namespace=metadata.get("namespace"),
            name=metadata["name"],
            error=str(error),
        )
        return False


def is_deselected(body: Json, watch: Watch) -> bool:
    """Return whether the watch's `deselection` has to run for the resource.

    It has been run before, as its annotation shows, and selector and `when` no longer match.
    A resource of another version's watch is not deselected, nor one for which `when` cannot be
    evaluated: `is_selected` logs that.
    """
    if watch.deselection is None:
        return False
    if watch.deselection.annotation not in (body["metadata"].get("annotations") or {}):
        return False
    try:
        return belongs_to(body, watch) and not _matches(body, watch)
    except ValueError:
        return False


def _matches(body: Json, watch: Watch) -> bool:
    """Return whether selector and `when` match. Raises ValueError if `when` has no value."""
    if not match_labels(watch.selector, body["metadata"].get("labels") or {}):
        return False
    return watch.when is None or is_true(evaluate(watch.when, body))


def blocks_upgrade(body: Json, watch: Watch) -> bool:
    """Return whether a run of the resource must not be broken by an upgrade of the operator.

    If `blockUpgrade` cannot be evaluated, the result is True and a warning is logged.
    """
    if watch.block_upgrade is None:
        return False
    try:
        return is_true(evaluate(watch.block_upgrade, body))
    except ValueError as error:
        metadata = body["metadata"]
        _log.warning(
            "Cannot evaluate `blockUpgrade` of watches.yaml; the run blocks upgrades",
            gvk=str(watch.gvk),
            namespace=metadata.get("namespace"),
            name=metadata["name"],
            error=str(error),
        )
        return True


_METADATA = frozenset({"apiVersion", "kind", "metadata"})


def targets_of(body: Json, trigger: ObjectTrigger) -> TriggerTargets | None:
    """Return what an object is about; None if it is not chosen, or names nothing.

    Raises ExpressionError, whose key is that of the trigger.
    """
    labels = body["metadata"].get("labels") or {}
    if not match_labels(trigger.selector, labels):
        return None
    if trigger.when is not None and not is_true(value_of("when", trigger.when, body)):
        return None
    namespaces = frozenset([body["metadata"].get("namespace") or ALL_NAMESPACES])
    if trigger.namespace is not None:
        namespaces = texts_of("namespace", trigger.namespace, body)
    names = None if trigger.name is None else texts_of("name", trigger.name, body)
    if not namespaces or names == frozenset():
        return None
    return TriggerTargets(namespaces, names, None if trigger.matching is None else labels)


def selected_by(
    resource: Json, trigger: ObjectTrigger
) -> tuple[LabelSelectorRequirement, ...] | None:
    """Return what a resource selects by `matching`; None without a selector.

    Raises ExpressionError, whose key is that of the trigger.
    """
    if trigger.matching is None:
        return None
    return selected_requirements("matching", trigger.matching, resource)


def needs_whole_objects(trigger: ObjectTrigger) -> bool:
    """Return whether an expression reads more of an object than its metadata and kind."""
    fields = (top_level_fields(each) for each in _over_object(trigger))
    return not all(each is not None and each <= _METADATA for each in fields)


def _over_object(trigger: ObjectTrigger) -> Iterator[str]:
    yield from filter(None, (trigger.when, trigger.name, trigger.namespace))
