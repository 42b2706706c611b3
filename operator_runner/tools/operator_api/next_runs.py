"""Read the next runs of resources, and their drift, from operators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

from operator_runner.core.model import Json, ObjectRef
from operator_runner.telemetry.runs.received import check_drift, check_queue_entry
from operator_runner.telemetry.runs.record import causes_text, matches
from operator_runner.tools.operator_api.discovery import Operators


@dataclass(frozen=True, slots=True)
class NextRun:
    """The place of a resource in a queue: a time, or the position among those that wait.

    `replica` is the operator with this queue, such as `Pod NAMESPACE/NAME`. `state` is Running,
    Queued or Delayed. `failures` are runs that failed in a row.
    """

    due: datetime | None = None
    position: int | None = None
    cause: str = ""
    replica: str = ""
    state: str = ""
    failures: int = 0


@dataclass(frozen=True, slots=True)
class Queues:
    """The queues of the operators that answer; `reason` is why none does, else empty.

    `drifts` has the resources with drift, or for which that is unknown. `invalid` has the operators
    that gave no valid answer.
    """

    items: tuple[Json, ...] = ()
    reason: str = ""
    invalid: tuple[str, ...] = ()
    drifts: tuple[Json, ...] = ()

    def next_run(self, ref: ObjectRef) -> NextRun | None:
        """Return when a resource runs next, None if no operator has queued it."""
        return next((next_run_of(each) for each in self.items if _is_about(each, ref)), None)

    def drift(self, ref: ObjectRef) -> Json | None:
        """Return the drift of a resource, or None."""
        return next((each for each in self.drifts if _is_about(each, ref)), None)


async def queues_of(operators: Operators) -> Queues:
    """Return the queues of the operators that answer. Does not raise ApiError."""
    items = await operators.collect("/queue", check_queue_entry)
    drifts = await drifts_of(operators)
    reason = "" if operators.clients else operators.reason
    return Queues(tuple(items), reason, tuple(operators.invalid), tuple(drifts))


async def drifts_of(
    operators: Operators, query: Mapping[str, str] = MappingProxyType({})
) -> list[Json]:
    """Return the resources with drift; operators of earlier versions have none."""
    return await operators.collect("/drift", check_drift, dict(query), optional=True)


def _is_about(item: Json, ref: ObjectRef) -> bool:
    kind = {"group": ref.gvk.group, "kind": ref.gvk.kind}
    return matches(item["resource"], {**kind, "namespace": ref.namespace, "name": ref.name})


def next_run_of(item: Json) -> NextRun:
    """Return the place of an entry of a queue, as `check_queue_entry` returns it."""
    due = item.get("due")
    time = None if due is None else datetime.fromisoformat(due)
    return NextRun(
        time,
        item.get("position"),
        causes_text(item),
        str(item.get("operator") or ""),
        str(item.get("state") or ""),
        item.get("failures") or 0,
    )
