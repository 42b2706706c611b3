"""The condition ExpressionFailure: expressions of a watch that fail for a resource at present.

Failures are recorded where expressions are evaluated: for events of objects, and at the end of a
run. The condition is written with the others at the end of a run; a failure, or its end, starts
one. The condition is removed when nothing fails any more, as ReplicaFailure of a Deployment is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from operator_runner.core.model import GVK, Json, ObjectRef, Watch
from operator_runner.core.resource_states import ResourceState
from operator_runner.core.texts import truncated
from operator_runner.reconcile.conditions import new_condition, put_condition
from operator_runner.reconcile.observer import REPORTS, Observer, Phase, ResourceRun

EXPRESSION_FAILURE = "ExpressionFailure"
_REASON = "InvalidExpression"
_SHOWN = 10
"""Maximum failures in a message: thousands of objects may be wrong."""
_TEXT_BYTES = 1000


@dataclass(frozen=True, slots=True)
class _Failure:
    """A failed expression, for display, and the resources that the object concerned before."""

    text: str
    resources: frozenset[ObjectRef]


@dataclass(slots=True)
class _FailuresOfStatus:
    """Texts by key, of the declared status of one resource."""

    texts: Mapping[str, str]


class ExpressionConditions:
    """The failures of all watches, by resource."""

    def __init__(
        self,
        concerned: Callable[[ObjectRef], Collection[ObjectRef]] = lambda _: (),
        changed: Callable[[ObjectRef, str, str], None] = lambda *_: None,
        count: Callable[[GVK, str], None] = lambda *_: None,
    ) -> None:
        """`concerned` returns the resources that own an object or refer to it.

        `changed` is called with a resource, the key of the expression and what has happened when
        the condition is to be written; `count` with kind and key of each failure of a declared
        status.
        """
        self._concerned = concerned
        self._changed = changed
        self._count = count
        self._by_object: defaultdict[GVK, dict[tuple[str, ObjectRef], _Failure]] = defaultdict(dict)

    def failed(
        self, gvk: GVK, key: str, ref: ObjectRef, text: str, resources: frozenset[ObjectRef]
    ) -> None:
        """Record that the expression `key` of the watch of `gvk` fails for an object.

        `resources` are those that the object was about; they stay concerned until it recovers.
        """
        old = self._by_object[gvk].get((key, ref))
        if old is not None:
            resources |= old.resources
        new = self._by_object[gvk][key, ref] = _Failure(truncated(text, _TEXT_BYTES), resources)
        if new != old:
            self._report(gvk, key, ref, new, f"fails for {ref}")

    def recovered(self, gvk: GVK, key: str, ref: ObjectRef) -> None:
        """Record that it can be evaluated again, or that the object is deleted."""
        failure = self._by_object[gvk].pop((key, ref), None)
        if failure is not None:
            self._report(gvk, key, ref, failure, f"no longer fails for {ref}")

    def evaluated(self, resource: ResourceState, texts: Mapping[str, str]) -> None:
        """Record which expressions of the declared status of a resource fail, by key."""
        old = _failures_of_status(resource)
        resource.drop(_FailuresOfStatus)
        if texts:
            new = {key: truncated(text, _TEXT_BYTES) for key, text in texts.items()}
            resource.slot(_FailuresOfStatus, new)
            for key, text in new.items():
                if old.get(key) != text:
                    self._count(resource.ref.gvk, key)

    def put_condition(
        self, conditions: Sequence[Json], resource: ResourceState, generation: int, now: datetime
    ) -> list[Json]:
        """Set or remove the condition of a resource."""
        texts = [*self._texts(resource.ref), *_failures_of_status(resource).values()]
        if not texts:
            return [each for each in conditions if not _is_ours(each)]
        more = len(texts) - _SHOWN
        shown = [*texts[:_SHOWN], f"and {more} more"] if more > 0 else texts
        text = "; ".join(shown)
        new = new_condition(EXPRESSION_FAILURE, "True", _REASON, text, generation)
        return put_condition(list(conditions), new, now)

    def _texts(self, resource: ObjectRef) -> Iterator[str]:
        for (_, ref), failure in self._by_object[resource.gvk].items():
            if resource in self._resources(resource.gvk, ref, failure):
                yield failure.text

    def _resources(self, gvk: GVK, ref: ObjectRef, failure: _Failure) -> set[ObjectRef]:
        found = {ref, *failure.resources, *self._concerned(ref)}
        return {each for each in found if each.gvk == gvk}

    def _report(self, gvk: GVK, key: str, ref: ObjectRef, failure: _Failure, what: str) -> None:
        for resource in sorted(self._resources(gvk, ref, failure)):
            self._changed(resource, key, what)


class ExpressionObserver(Observer):
    """Writes the condition of the expressions that fail for a resource."""

    def __init__(self, watch: Watch, expressions: ExpressionConditions) -> None:
        """`expressions` has those that fail."""
        self._expressions = expressions
        if not (watch.references or watch.triggers or watch.wake_on or watch.status):
            self.marks = {EXPRESSION_FAILURE}

    def conditions(self, run: ResourceRun, phase: Phase, conditions: list[Json]) -> list[Json]:
        """See `Observer`."""
        if phase not in REPORTS:
            return conditions
        return self._expressions.put_condition(conditions, run.state, run.generation, run.now)


def _failures_of_status(resource: ResourceState) -> Mapping[str, str]:
    found = resource.find(_FailuresOfStatus)
    return {} if found is None else found.texts


def _is_ours(condition: Json) -> bool:
    return condition.get("type") == EXPRESSION_FAILURE and condition.get("reason") == _REASON
