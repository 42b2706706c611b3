"""Events of objects that resources refer to: a Secret, a ConfigMap, another resource.

`references` of a watch declares the kinds, and the fields with names or label selectors. The
metadata of each kind is watched once, for any number of resources and objects; objects without
a reference to them cause no reconcile.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from operator_runner.config.watches import expressions
from operator_runner.config.watches.selector import selected_requirements
from operator_runner.controller.predicates.dependent_changes import Version, difference
from operator_runner.controller.predicates.wake_on_fields import (
    NO_FIELDS,
    ExpressionPlace,
    FailedExpression,
    WakeOnFields,
    difference_of,
)
from operator_runner.controller.sources.debouncing import Debouncer
from operator_runner.controller.sources.shared_watches import SharedEvent, Subscription
from operator_runner.core.errors import ExpressionError
from operator_runner.core.labels import SelectionIndex
from operator_runner.core.model import (
    GVK,
    Cause,
    Json,
    ObjectRef,
    Reference,
    Selection,
    Trigger,
    Watch,
    uid_of,
)
from operator_runner.kube.watch import EventType


class References:
    """Maps referenced objects to resources, which are reconciled when the object changes."""

    def __init__(
        self,
        watches: Sequence[Watch],
        enqueue: Callable[[ObjectRef, Cause], None],
        failed: Callable[[FailedExpression], None],
        debouncer: Debouncer,
        fields: WakeOnFields = NO_FIELDS,
        *,
        recovered: Callable[[ExpressionPlace], None] = lambda _: None,
    ) -> None:
        """`failed` is called for an expression that fails, once until its error changes.

        `recovered` is called when it can be evaluated again or the resource is deleted. `fields`
        are those of `wakeOn`.
        """
        self._watches = {watch.gvk: watch for watch in watches if watch.references}
        self._fields = fields
        self._failed = failed
        self._recovered = recovered
        self._errors: dict[ObjectRef, dict[str, tuple[str, str]]] = {}
        """Uid and error by the key of each expression that fails for a resource."""
        self._debouncer = debouncer
        self._enqueue = enqueue
        self._references: dict[ObjectRef, frozenset[ObjectRef | Selection]] = {}
        self._named_by: defaultdict[ObjectRef, set[ObjectRef]] = defaultdict(set)
        self._selections = SelectionIndex()
        self._selected_kinds = {
            each.gvk for watch in watches for each in watch.references if each.selector is not None
        }
        # Of each object of these kinds: with other labels, other resources may select it.
        self._labels: dict[ObjectRef, Mapping[str, str]] = {}
        self._versions: dict[ObjectRef, Version] = {}
        self._values: dict[ObjectRef, Mapping[str, str]] = {}

    def on_change(self, ref: ObjectRef, body: Json | None) -> None:
        """Update the references of a resource; None for a deleted one."""
        watch = self._watches.get(ref.gvk)
        if watch is None:
            return
        if body is None:
            self._report(ref, "", {})
        new = frozenset() if body is None else self._targets(ref, body, watch)
        old = self._references.pop(ref, frozenset())
        if new:
            self._references[ref] = new
        for target in new - old:
            if isinstance(target, Selection):
                self._selections.add(target, ref)
            else:
                self._named_by[target].add(ref)
        for target in old - new:
            if isinstance(target, Selection):
                self._selections.discard(target, ref)
            else:
                self._forget_name(target, ref)

    def _targets(
        self, ref: ObjectRef, body: Json, watch: Watch
    ) -> frozenset[ObjectRef | Selection]:
        errors: dict[str, ExpressionError] = {}
        found = frozenset(referenced(body, watch, lambda error: errors.update({error.key: error})))
        self._report(ref, uid_of(body), errors)
        return found

    def _report(self, ref: ObjectRef, uid: str, errors: Mapping[str, ExpressionError]) -> None:
        """Report what differs from the errors of the former state of the resource."""
        old = self._errors.pop(ref, {})
        new = {key: (uid, str(error)) for key, error in errors.items()}
        if new:
            self._errors[ref] = new
        for key, error in errors.items():
            if old.get(key) != new[key]:
                self._failed(FailedExpression(ref.gvk, error, ref, uid))
        for key in old.keys() - new.keys():
            self._recovered(ExpressionPlace(ref.gvk, key, ref))

    def referring(self, target: ObjectRef) -> set[ObjectRef]:
        """Return the resources that refer to an object."""
        labels = self._labels.get(target)
        selecting = (
            set()
            if labels is None
            else self._selections.selecting(target.gvk, target.namespace, labels)
        )
        return self._named_by.get(target, set()) | selecting

    def _forget_name(self, target: ObjectRef, ref: ObjectRef) -> None:
        self._named_by[target].discard(ref)
        if not self._named_by[target]:
            del self._named_by[target]
            self._forget_state(target)

    def subscriptions(self) -> Iterator[Subscription]:
        """Yield what has to be watched."""
        for gvk in {each.gvk for watch in self._watches.values() for each in watch.references}:
            take, what = partial(self._take, gvk), "referenced objects"
            if self._fields.has_kind(gvk):
                extract = partial(self._fields.values, gvk)
                yield Subscription(gvk, take, what, extract=extract, whole=True)
            else:
                yield Subscription(gvk, take, what)

    def _take(self, gvk: GVK, event: SharedEvent) -> None:
        if event.type is EventType.SYNCED:
            return
        target = ObjectRef.of_kind(gvk, event.body)
        if event.type is EventType.DELETED:
            self._fields.deleted(target)
        by = self._named_by.get(target, set()) | self._selecting(target, event)
        if not by:
            self._forget_state(target)
            return
        before, after = self._values.pop(target, None), event.extracted
        if after is not None:
            self._values[target] = after
        what = self._change_of(target, event)
        for ref in by:
            chosen = self._fields.of(ref.gvk, gvk) if before is not None else ()
            fields = difference_of(before or {}, after or {}, chosen) if after is not None else ""
            text = ", ".join(filter(None, (what, fields)))
            # Changes of a status may be many: they are coalesced.
            enqueue = self._enqueue if what else self._debouncer.add
            if text:
                enqueue(ref, Cause(Trigger.REFERENCE, f"{target} {text}", target))

    def _forget_state(self, target: ObjectRef) -> None:
        self._versions.pop(target, None)
        self._values.pop(target, None)

    def _selecting(self, target: ObjectRef, event: SharedEvent) -> set[ObjectRef]:
        """Return the resources that select the object, or did before the event."""
        if target.gvk not in self._selected_kinds:
            return set()
        before = self._labels.pop(target, None)
        now = None
        if event.type is not EventType.DELETED:
            now = self._labels[target] = event.body["metadata"].get("labels") or {}
        states = [before] if before == now else [before, now]
        gvk, namespace = target.gvk, target.namespace
        found = (
            self._selections.selecting(gvk, namespace, each) for each in states if each is not None
        )
        return set().union(*found)

    def _change_of(self, target: ObjectRef, event: SharedEvent) -> str:
        """Return what happened to an object; empty if it existed before or no change matters."""
        old = self._versions.pop(target, None)
        if event.type is EventType.DELETED:
            return "deleted"
        new = self._versions[target] = Version.of(event.body["metadata"])
        if old is not None:
            return difference(old, new)
        if event.type is EventType.ADDED:
            # The run at start has seen objects that existed before.
            return "" if event.existed else "created"
        return "changed"


_MAX_TARGETS = 10_000
"""Names, or values of a selector, times namespaces: filed in 0.1 s, with 10 MB of memory.

A user with write access to a resource can write lists of both, whose product has no bound.
"""


def referenced(
    body: Json, watch: Watch, failed: Callable[[ExpressionError], None]
) -> Iterator[ObjectRef | Selection]:
    """Yield the objects that a resource names, and the selections of objects by label.

    Each is also yielded without a namespace, because its kind may be cluster-scoped. `failed` is
    called for each expression that cannot be evaluated, or gives no names or selector where they
    are expected; it refers to nothing then.
    """
    for number, reference in enumerate(watch.references):
        try:
            yield from _objects(body, reference)
        except ExpressionError as error:
            failed(error.within(f"references[{number}]"))


def _objects(body: Json, reference: Reference) -> Iterator[ObjectRef | Selection]:
    namespaces = {*_namespaces(body, reference), ""}
    if reference.name is not None:
        names = expressions.texts_of("name", reference.name, body)
        _check_number("name", reference.name, len(names), namespaces)
        for name in names:
            for namespace in namespaces:
                yield ObjectRef(reference.gvk, namespace, name)
    if reference.selector is not None:
        yield from _selections(body, reference, reference.selector, namespaces)


def _selections(
    body: Json, reference: Reference, expression: str, namespaces: set[str]
) -> Iterator[Selection]:
    requirements = selected_requirements("selector", expression, body)
    if requirements is None:
        return
    values = sum(len(each.values) or 1 for each in requirements)
    _check_number("selector", expression, values, namespaces)
    for namespace in namespaces:
        yield Selection(reference.gvk, namespace, requirements)


def _check_number(key: str, expression: str, number: int, namespaces: set[str]) -> None:
    given = len(namespaces - {""})
    if max(1, number) * max(1, given) > _MAX_TARGETS:
        raise ExpressionError(
            key,
            expression,
            f"{number} values in {given} namespaces are more than {_MAX_TARGETS}; refer to fewer"
            " objects, or select them by a label",
        )


def _namespaces(body: Json, reference: Reference) -> frozenset[str]:
    """Return the namespaces of a reference; the resource's own, unless the field names others."""
    named: frozenset[str] = frozenset()
    if reference.namespace is not None:
        named = expressions.texts_of("namespace", reference.namespace, body)
    return named or frozenset([body["metadata"].get("namespace") or ""])
