"""The fields of `wakeOn`: their values in an object, and what has changed. Pure but for the log.

Values are kept as text: short ones as JSON, for display, others as a digest. The values of Secrets
are always digests.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import structlog

from operator_runner.config.watches import expressions
from operator_runner.core.deduplication import Deduplicator
from operator_runner.core.model import GVK, Json, ObjectRef, Watch
from operator_runner.core.truncation import truncated

_log = structlog.get_logger(__name__)
_VALUE_BYTES = 40
"""Maximum length of a value that is shown."""
_EXPRESSION_BYTES = 120
_DIGEST_MARK = "#"
"""First character of a digest; no JSON begins with it."""
_NULL = "null"
_LOGGED = 1000
"""Objects and expressions whose last error is remembered, so that it is logged once."""


class ChosenFields:
    """The fields of each kind whose changes start a reconcile, by the watch that declares them."""

    def __init__(self, watches: Sequence[Watch]) -> None:
        """Take `wakeOn` of the watches."""
        self._by_watch: dict[tuple[GVK, GVK], tuple[str, ...]] = {}
        by_kind: defaultdict[GVK, dict[str, None]] = defaultdict(dict)
        for watch in watches:
            for each in watch.wake_on:
                key = (watch.gvk, each.gvk)
                self._by_watch[key] = (*self._by_watch.get(key, ()), *each.fields)
                by_kind[each.gvk].update(dict.fromkeys(each.fields))
        self._by_kind = {gvk: tuple(fields) for gvk, fields in by_kind.items()}
        self._errors = Deduplicator(_LOGGED)

    def has_kind(self, gvk: GVK) -> bool:
        """Return whether any watch has chosen fields of a kind."""
        return gvk in self._by_kind

    def of(self, primary: GVK, gvk: GVK) -> tuple[str, ...]:
        """Return the fields of `gvk` that the watch of `primary` has chosen."""
        return self._by_watch.get((primary, gvk), ())

    def values(self, gvk: GVK, body: Json) -> Mapping[str, str]:
        """Return the values of all chosen fields of a whole object, by expression.

        An expression that cannot be evaluated is null, and logged once.
        """
        fields = self._by_kind.get(gvk, ())
        return {field: self._value(gvk, body, field) for field in fields}

    def _value(self, gvk: GVK, body: Json, expression: str) -> str:
        try:
            value = expressions.evaluate(expression, body)
        except ValueError as error:
            metadata = body["metadata"]
            ref = ObjectRef(gvk, metadata.get("namespace") or "", metadata["name"])
            if self._errors.is_new((ref, expression, str(error))):
                _log.warning(
                    "Cannot evaluate an expression of `wakeOn` in watches.yaml",
                    expression=expression,
                    object=str(ref),
                    error=str(error),
                    cure="correct the expression, or add a default with ||",
                )
            return _NULL
        return _text(value, hidden=gvk.kind == "Secret")


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
