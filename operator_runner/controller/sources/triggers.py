"""Events of objects that resources neither own nor name: a Namespace, a Pod with a label.

`triggers` of a watch declares the kinds, and which resources an object is about. These are found
in memory, by namespace and name or by their label selectors; an object costs no request.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from operator_runner.config.watches import selection
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
from operator_runner.core.labels import SelectionIndex, selector_text
from operator_runner.core.model import (
    ALL_NAMESPACES,
    GVK,
    Cause,
    Json,
    LabelSelector,
    ObjectRef,
    ObjectTrigger,
    Selection,
    Trigger,
    TriggerTargets,
    Watch,
    uid_of,
)
from operator_runner.kube.watch import EventType

_ANYWHERE = ""
"""Namespace of an object under which the selections of all resources are found."""


@dataclass(frozen=True, slots=True)
class Sinks:
    """Callbacks of triggers."""

    enqueue: Callable[[ObjectRef, Cause], None]
    failed: Callable[[FailedExpression], None]
    handled: Callable[[GVK, GVK, str, int], None] = lambda *_: None
    """Called for each event that matters: both kinds, uid of the object, number of resources."""
    recovered: Callable[[ExpressionPlace], None] = lambda _: None
    """Called when an expression can be evaluated again, or its object is deleted."""


class Triggers:
    """Maps trigger objects to the resources that are reconciled when these objects change."""

    def __init__(
        self,
        watches: Sequence[Watch],
        is_reconciled: Callable[[ObjectRef], bool],
        sinks: Sinks,
        debouncer: Debouncer,
        fields: WakeOnFields = NO_FIELDS,
    ) -> None:
        """`is_reconciled` returns whether events of a resource lead to runs at present.

        `fields` are those of `wakeOn`.
        """
        self._kinds: dict[GVK, _Resources] = {}
        self._rules: defaultdict[GVK, list[_Rule]] = defaultdict(list)
        for watch in watches:
            for number, trigger in enumerate(watch.triggers):
                resources = self._kinds.setdefault(watch.gvk, _Resources(watch.gvk, is_reconciled))
                coalescing = _Coalescing(fields.of(watch.gvk, trigger.gvk), fields, debouncer)
                rule = _Rule(number, trigger, resources, sinks, coalescing=coalescing)
                self._rules[watch.gvk].append(rule)

    def subscriptions(self) -> Iterator[Subscription]:
        """Yield what has to be watched."""
        for rules in self._rules.values():
            for rule in rules:
                yield rule.subscription()

    def on_change(self, ref: ObjectRef, body: Json | None) -> None:
        """Update what is known of a resource; None for a deleted one."""
        if ref.gvk not in self._kinds:
            return
        self._kinds[ref.gvk].update(ref, exists=body is not None)
        for rule in self._rules[ref.gvk]:
            rule.on_change(ref, body)


class _Resources:
    """The resources of a kind that exist, by namespace and name."""

    def __init__(self, gvk: GVK, is_reconciled: Callable[[ObjectRef], bool]) -> None:
        self.gvk = gvk
        self._is_reconciled = is_reconciled
        self._by_namespace: defaultdict[str, dict[str, ObjectRef]] = defaultdict(dict)

    def update(self, ref: ObjectRef, *, exists: bool) -> None:
        """Add or remove a resource."""
        if exists:
            self._by_namespace[ref.namespace][ref.name] = ref
        elif ref.namespace in self._by_namespace:
            self._by_namespace[ref.namespace].pop(ref.name, None)
            if not self._by_namespace[ref.namespace]:
                del self._by_namespace[ref.namespace]

    def chosen(self, refs: Iterable[ObjectRef]) -> Iterator[ObjectRef]:
        """Yield those of the resources that are chosen by their watch."""
        return filter(self._is_reconciled, refs)

    def find(self, targets: TriggerTargets) -> Iterator[ObjectRef]:
        """Yield the resources of the namespaces and names; cluster-scoped ones have no namespace.

        Their labels are not compared.
        """
        for name_to_ref in self._in_namespaces(targets.namespaces):
            if targets.names is None:
                yield from name_to_ref.values()
            else:
                yield from (name_to_ref[name] for name in targets.names & name_to_ref.keys())

    def _in_namespaces(self, namespaces: frozenset[str]) -> Iterator[dict[str, ObjectRef]]:
        if ALL_NAMESPACES in namespaces:
            yield from self._by_namespace.values()
            return
        for namespace in {*namespaces, ""} & self._by_namespace.keys():
            yield self._by_namespace[namespace]


@dataclass(frozen=True, slots=True)
class _SeenObject:
    """A chosen object as last seen."""

    version: Version
    targets: TriggerTargets
    values: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Extract:
    """Targets of an object, None if it is not chosen, and the values of chosen fields."""

    targets: TriggerTargets | ExpressionError | None = None
    values: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Coalescing:
    """The fields of `wakeOn` for a trigger, whose changes are coalesced."""

    chosen: Sequence[str]
    fields: WakeOnFields
    debouncer: Debouncer


class _Rule:
    """One trigger of one kind, and the objects that it chooses."""

    def __init__(
        self,
        number: int,
        trigger: ObjectTrigger,
        resources: _Resources,
        sinks: Sinks,
        *,
        coalescing: _Coalescing,
    ) -> None:
        self._coalescing = coalescing
        self._place = f"triggers[{number}]"
        self._trigger = trigger
        self._resources = resources
        self._sinks = sinks
        self._objects: dict[ObjectRef, _SeenObject] = {}
        self._failed: dict[ObjectRef, tuple[Version, ExpressionError]] = {}
        """Objects for which an expression failed, with what was reported."""
        self._selections: dict[ObjectRef, tuple[Selection, ...]] = {}
        self._index = SelectionIndex()
        self._unselectable: dict[ObjectRef, tuple[str, str]] = {}
        """Uid and error of resources whose `matching` failed."""

    def subscription(self) -> Subscription:
        return Subscription(
            self._trigger.gvk,
            self.take,
            "trigger objects",
            selector_text(self._trigger.selector),
            self._evaluate,
            selection.needs_whole_objects(self._trigger) or bool(self._coalescing.chosen),
        )

    # Resources -----------------------------------------------------------------------

    def on_change(self, ref: ObjectRef, body: Json | None) -> None:
        """Update what a resource selects."""
        if self._trigger.matching is None:
            return
        new = () if body is None else self._selections_of(ref, body)
        old = self._selections.pop(ref, ())
        if new:
            self._selections[ref] = new
        for each in old if old != new else ():
            self._index.discard(each, ref)
        for each in new if old != new else ():
            self._index.add(each, ref)
        if body is None:
            self._selectable(ref)

    def _selections_of(self, ref: ObjectRef, body: Json) -> tuple[Selection, ...]:
        try:
            requirements = selection.selected_by(body, self._trigger)
        except ExpressionError as error:
            uid = uid_of(body)
            if self._unselectable.get(ref) != (uid, str(error)):
                self._unselectable[ref] = uid, str(error)
                self._report(error, ref, uid)
            return ()
        self._selectable(ref)
        if requirements is None:
            return ()
        # Objects may be about resources of all namespaces; one without is about those anyway.
        namespaces = (ref.namespace, _ANYWHERE) if ref.namespace else (ALL_NAMESPACES,)
        return tuple(Selection(self._trigger.gvk, each, requirements) for each in namespaces)

    def _selectable(self, ref: ObjectRef) -> None:
        if self._unselectable.pop(ref, None) is not None:
            self._on_recovery("matching", ref)

    # Objects -------------------------------------------------------------------------

    def _evaluate(self, body: Json) -> _Extract:
        try:
            targets = selection.targets_of(body, self._trigger)
        except ExpressionError as error:
            return _Extract(error)
        if targets is None or not self._coalescing.chosen:
            return _Extract(targets)
        return _Extract(targets, self._coalescing.fields.values(self._trigger.gvk, body))

    def take(self, event: SharedEvent) -> None:
        """Process an event of an object, or a complete list."""
        if event.type is EventType.SYNCED:
            self._find_missing(event)
            return
        ref = ObjectRef.of_kind(self._trigger.gvk, event.body)
        if event.type is EventType.DELETED:
            self._on_deleted(ref, uid_of(event.body))
            return
        version = Version.of(event.body["metadata"])
        extract: _Extract = event.extracted or _Extract()
        if isinstance(extract.targets, ExpressionError):
            self._on_failure(ref, version, extract.targets)
            return
        self._forget_failure(ref)
        seen = None
        if extract.targets is not None:
            seen = _SeenObject(version, extract.targets, extract.values)
        self._on_state(ref, seen, event)

    def _find_missing(self, event: SharedEvent) -> None:
        """Process objects that a complete list lacks as deleted while there was no watch."""
        known = {ref: seen.version.uid for ref, seen in self._objects.items()}
        known |= {ref: version.uid for ref, (version, _) in self._failed.items()}
        for ref, uid in known.items():
            is_listed = not ref.namespace or event.namespace in {None, ref.namespace}
            if is_listed and uid not in event.body["uids"]:
                self._on_deleted(ref, uid)

    def _on_deleted(self, ref: ObjectRef, uid: str) -> None:
        self._forget_failure(ref)
        seen = self._objects.get(ref)
        if seen is None or seen.version.uid != uid:
            return
        del self._objects[ref]
        # The API server also reports an object that has lost the labels as deleted.
        is_sure = self._trigger.selector == LabelSelector()
        self._wake(ref, [seen], "deleted" if is_sure else "deleted or no longer selected")

    def _on_failure(self, ref: ObjectRef, version: Version, error: ExpressionError) -> None:
        """Report a failure once for each state of the object, which is not chosen any more."""
        seen = self._objects.pop(ref, None)
        reported = self._failed.get(ref)
        if reported is not None and reported[1].key != error.key:
            self._forget_failure(ref)
        self._failed[ref] = version, error
        if reported is None or str(reported[1]) != str(error) or difference(reported[0], version):
            resources = frozenset() if seen is None else frozenset(self._find(ref, [seen.targets]))
            self._report(error, ref, version.uid, resources)
        if seen is not None:
            self._wake(ref, [seen], "no longer matches")

    def _forget_failure(self, ref: ObjectRef) -> None:
        failed = self._failed.pop(ref, None)
        if failed is not None:
            self._on_recovery(failed[1].key, ref)

    def _on_recovery(self, key: str, ref: ObjectRef) -> None:
        place = ExpressionPlace(self._resources.gvk, f"{self._place}.{key}", ref)
        self._sinks.recovered(place)

    def _on_state(self, ref: ObjectRef, new: _SeenObject | None, event: SharedEvent) -> None:
        old = self._objects.pop(ref, None)
        if new is not None:
            self._objects[ref] = new
        if old is None:
            if new is not None and not event.existed:
                created = event.type is EventType.ADDED
                self._wake(ref, [new], "created" if created else "now matches")
        elif new is None:
            self._wake(ref, [old], "no longer matches")
        else:
            moved = "changed" if old.targets != new.targets else ""
            what = difference(old.version, new.version) or moved
            fields = difference_of(old.values, new.values, self._coalescing.chosen)
            text = ", ".join(filter(None, (what, fields)))
            self._wake(ref, [old, new], text, coalesce=not what)

    def _wake(
        self, ref: ObjectRef, states: Sequence[_SeenObject], what: str, *, coalesce: bool = False
    ) -> None:
        if not what:
            return
        resources = self._find(ref, [seen.targets for seen in states])
        cause = Cause(Trigger.TRIGGER, f"{ref} {what}", ref)
        enqueue = self._coalescing.debouncer.add if coalesce else self._sinks.enqueue
        for resource in resources:
            enqueue(resource, cause)
        uid = states[-1].version.uid
        self._sinks.handled(self._resources.gvk, self._trigger.gvk, uid, len(resources))

    def _find(self, ref: ObjectRef, targets: Iterable[TriggerTargets]) -> set[ObjectRef]:
        """Return the chosen resources that an object is about; never the object itself."""
        found: set[ObjectRef] = set()
        for each in targets:
            if each.labels is None:
                found.update(self._resources.find(each))
            else:
                found.update(self._selecting(each))
        return set(self._resources.chosen(found - {ref}))

    def _selecting(self, targets: TriggerTargets) -> Iterator[ObjectRef]:
        everywhere = ALL_NAMESPACES in targets.namespaces
        for namespace in (_ANYWHERE,) if everywhere else targets.namespaces:
            yield from self._index.selecting(self._trigger.gvk, namespace, targets.labels or {})

    def _report(
        self,
        error: ExpressionError,
        ref: ObjectRef,
        uid: str,
        resources: frozenset[ObjectRef] = frozenset(),
    ) -> None:
        located = error.within(self._place)
        self._sinks.failed(FailedExpression(self._resources.gvk, located, ref, uid, resources))
