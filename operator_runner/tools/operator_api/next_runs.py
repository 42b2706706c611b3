"""When resources run next, from the queues of operators."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from operator_runner.core.model import Json, ObjectRef
from operator_runner.kube.api import Api
from operator_runner.tools.operator_api.finding import find_operators


@dataclass(frozen=True, slots=True)
class NextRun:
    """The place of a resource in a queue: a time, or the position among those that wait."""

    due: datetime | None = None
    position: int | None = None
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Queues:
    """The queues of the operators that answer; `reason` is why none does, else empty."""

    items: tuple[Json, ...] = ()
    reason: str = ""

    def next_run(self, ref: ObjectRef) -> NextRun | None:
        """Return when a resource runs next, None if no operator has queued it."""
        return next((_next_run(each) for each in self.items if _is_about(each, ref)), None)


async def read_queues(api: Api, namespace: str) -> Queues:
    """Return the queues of all operators of the cluster that answer. Does not raise ApiError."""
    async with find_operators(api, namespace) as operators:
        items = await operators.collect("/queue")
        return Queues(tuple(items), "" if operators.clients else operators.reason)


def _is_about(item: Json, ref: ObjectRef) -> bool:
    resource = item.get("resource") or {}
    return (
        str(resource.get("apiVersion")).rpartition("/")[0] == ref.gvk.group
        and resource.get("kind") == ref.gvk.kind
        and (resource.get("namespace") or "") == ref.namespace
        and resource.get("name") == ref.name
    )


def _next_run(item: Json) -> NextRun:
    causes: Iterable[Json] = item.get("causes") or ()
    words = [": ".join(filter(None, (str(c.get("trigger")), c.get("detail")))) for c in causes]
    position = item.get("position")
    return NextRun(
        _time(item.get("due")), position if isinstance(position, int) else None, "; ".join(words)
    )


def _time(text: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
