"""An expression of a watch that cannot be evaluated for an object, and one that can be again."""

from __future__ import annotations

from dataclasses import dataclass

from operator_runner.core.errors import ExpressionError
from operator_runner.core.model import GVK, ObjectRef


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
