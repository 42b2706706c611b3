"""An expression of a watch that cannot be evaluated for an object."""

from __future__ import annotations

from dataclasses import dataclass

from operator_runner.core.errors import ExpressionError
from operator_runner.core.model import GVK, ObjectRef


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
