"""The fields of `wakeOn`: their values in an object, and what has changed. Pure.

Values are kept as text: short ones as JSON, for display, others as a digest. The values of Secrets
are always digests.

A run has seen a dependent of the first response with it: events up to its version change nothing.
Later responses of the same run hide nothing, because the role may have decided before.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from operator_runner.config.watches import expressions
from operator_runner.core.errors import ExpressionError
from operator_runner.core.model import GVK, Json, ObjectRef, Watch, may_be_older, uid_of
from operator_runner.core.resource_states import ResourceStates
from operator_runner.core.texts import truncated


@dataclass(frozen=True, slots=True)
class ExpressionPlace:
    """The expression `key` of the watch of `gvk`, for the object `ref`."""

    gvk: GVK
    key: str
    ref: ObjectRef


@dataclass(frozen=True, slots=True)
class FailedExpression:
    """An expression of the watch of `gvk` that fails for the object `ref`.

    `error.key` is where it is in the watch, such as `triggers[0].when`. `resources` are those that
    the object was about before.
    """

    gvk: GVK
    error: ExpressionError
    ref: ObjectRef
    uid: str
    resources: frozenset[ObjectRef] = frozenset()

    @property
    def place(self) -> ExpressionPlace:
        """The place of the expression."""
        return ExpressionPlace(self.gvk, self.error.key, self.ref)


_VALUE_BYTES = 40
"""Maximum length of a value that is shown."""
_EXPRESSION_BYTES = 120
_DIGEST_MARK = "#"
"""First character of a digest; no JSON begins with it."""
_NULL = "null"
_MAX_ERRORS = 1000
"""Objects and expressions whose last error is remembered, so that it is reported once."""


class WakeOnFields:
    """The fields of each kind whose changes start a reconcile, by the watch that declares them."""

    def __init__(
        self,
        watches: Sequence[Watch],
        failed: Callable[[FailedExpression], None],
        recovered: Callable[[ExpressionPlace], None] = lambda _: None,
    ) -> None:
        """Take `wakeOn` of the watches; `failed` is called for an expression that fails.

        `recovered` is called when it can be evaluated again, or its object is deleted.
        """
        self._failed = failed
        self._recovered = recovered
        self._keys: dict[tuple[GVK, str], tuple[GVK, str]] = {}
        """The watch that chooses a field, and the key there, by the kind and the expression."""
        self._by_watch: dict[tuple[GVK, GVK], tuple[str, ...]] = {}
        by_kind: defaultdict[GVK, dict[str, None]] = defaultdict(dict)
        for watch in watches:
            for number, each in enumerate(watch.wake_on):
                key = (watch.gvk, each.gvk)
                self._by_watch[key] = (*self._by_watch.get(key, ()), *each.fields)
                by_kind[each.gvk].update(dict.fromkeys(each.fields))
                for index, field in enumerate(each.fields):
                    place = watch.gvk, f"wakeOn[{number}].fields[{index}]"
                    self._keys.setdefault((each.gvk, field), place)
        self._by_kind = {gvk: tuple(fields) for gvk, fields in by_kind.items()}
        self._errors: OrderedDict[tuple[ObjectRef, str], tuple[str, str]] = OrderedDict()
        """Uid and error of the expressions that fail for an object, the oldest first."""

    @property
    def is_empty(self) -> bool:
        """Whether no watch has chosen any."""
        return not self._by_watch

    def has_kind(self, gvk: GVK) -> bool:
        """Return whether any watch has chosen fields of a kind."""
        return gvk in self._by_kind

    def of(self, primary: GVK, gvk: GVK) -> tuple[str, ...]:
        """Return the fields of `gvk` that the watch of `primary` has chosen."""
        return self._by_watch.get((primary, gvk), ())

    def values(self, gvk: GVK, body: Json) -> Mapping[str, str]:
        """Return the values of all chosen fields of a whole object, by expression.

        An expression that cannot be evaluated is null, and reported once until its error changes.
        """
        fields = self._by_kind.get(gvk, ())
        return {field: self._value(gvk, body, field) for field in fields}

    def deleted(self, ref: ObjectRef) -> None:
        """Forget what fails for an object that is deleted."""
        for expression in self._by_kind.get(ref.gvk, ()):
            self._forget_error(ref, expression)

    def _value(self, gvk: GVK, body: Json, expression: str) -> str:
        try:
            value = expressions.evaluate(expression, body)
        except ValueError as error:
            self._report(ObjectRef.of_kind(gvk, body), uid_of(body), expression, str(error))
            return _NULL
        if self._errors:
            self._forget_error(ObjectRef.of_kind(gvk, body), expression)
        return _text(value, hidden=gvk.kind == "Secret")

    def _report(self, ref: ObjectRef, uid: str, expression: str, error: str) -> None:
        place, state = (ref, expression), (uid, error)
        known = self._errors.get(place)
        self._errors[place] = state
        self._errors.move_to_end(place)
        if len(self._errors) > _MAX_ERRORS:
            self._forget_error(*next(iter(self._errors)))
        if known != state:
            primary, key = self._keys[ref.gvk, expression]
            found = ExpressionError(key, expression, error)
            self._failed(FailedExpression(primary, found, ref, uid))

    def _forget_error(self, ref: ObjectRef, expression: str) -> None:
        if self._errors.pop((ref, expression), None) is not None:
            primary, key = self._keys[ref.gvk, expression]
            self._recovered(ExpressionPlace(primary, key, ref))


NO_FIELDS = WakeOnFields((), lambda _: None)
"""Without any fields, for watches without `wakeOn`."""


def difference_of(old: Mapping[str, str], new: Mapping[str, str], fields: Sequence[str]) -> str:
    """Return what has changed in these fields, for display; empty if nothing has.

    `status.readyReplicas 1 to 2`, without values that are long or those of a Secret.
    """
    return ", ".join(
        _change(field, before, after)
        for field in dict.fromkeys(fields)
        if (before := old.get(field, _NULL)) != (after := new.get(field, _NULL))
    )


def _change(field: str, before: str, after: str) -> str:
    name = truncated(field, _EXPRESSION_BYTES)
    if _DIGEST_MARK in (before[:1], after[:1]):
        return f"{name} changed"
    return f"{name} {_shown(before)} to {_shown(after)}"


def _shown(text: str) -> str:
    value = json.loads(text)
    if value is None or value == "":
        return "none"
    return value if isinstance(value, str) else text


def _text(value: Any, *, hidden: bool) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    is_short = len(text.encode()) <= _VALUE_BYTES and not isinstance(value, dict | list)
    if text == _NULL or (is_short and not hidden):
        return text
    return _DIGEST_MARK + hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class _SeenFields:
    version: str
    values: Mapping[str, str]


class _SeenDependents:
    """The chosen fields of the objects of a resource, as its runs have seen them."""

    def __init__(self) -> None:
        self.seen: dict[ObjectRef, _SeenFields] = {}
        self.read: set[ObjectRef] = set()
        """Objects that the current run has seen."""


class WakeOnChanges:
    """Compares the chosen fields of dependents with what their owners have seen."""

    def __init__(self, fields: WakeOnFields, states: ResourceStates) -> None:
        """Take the fields by watch; keep what was seen in `states`."""
        self._fields = fields
        self._states = states

    def run_started(self, owner: ObjectRef) -> None:
        """Record that a run begins: the next response about each object is its first one."""
        self._of(owner).read.clear()

    def on_response(self, owner: ObjectRef, ref: ObjectRef, body: Json) -> None:
        """Record an object in a response to a run of `owner`."""
        if not self._fields.of(owner.gvk, ref.gvk):
            return
        known = self._of(owner)
        read, seen = known.read, known.seen
        if ref in read and ref in seen:
            return
        read.add(ref)
        version = str(body["metadata"].get("resourceVersion") or "")
        if ref not in seen or not may_be_older(version, seen[ref].version):
            seen[ref] = _SeenFields(version, self._fields.values(ref.gvk, body))

    def change(
        self,
        owner: ObjectRef,
        ref: ObjectRef,
        version: str,
        values: Mapping[str, str],
        *,
        own_write: bool,
    ) -> str:
        """Return what an event changes for `owner`, for display; empty if nothing has changed.

        `own_write` is whether a run of `owner` has made this version.
        """
        fields = self._fields.of(owner.gvk, ref.gvk)
        seen = self._of(owner).seen
        old = seen.get(ref) if fields else None
        if not fields or (old is not None and not may_be_older(old.version, version)):
            return ""
        seen[ref] = _SeenFields(version, values)
        return "" if old is None or own_write else difference_of(old.values, values, fields)

    def removed(self, owner: ObjectRef, ref: ObjectRef) -> None:
        """Drop an object of `owner` that was deleted."""
        self._of(owner).seen.pop(ref, None)

    def _of(self, owner: ObjectRef) -> _SeenDependents:
        return self._states.of(owner).slot(_SeenDependents)
