"""When resources run next, from the queues of operators."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from operator_runner.core.model import Json, ObjectRef
from operator_runner.kube.api import Api
from operator_runner.telemetry.runs.received import check_queue_entry
from operator_runner.telemetry.runs.record import matches
from operator_runner.tools.operator_api.discovery import find_operators


@dataclass(frozen=True, slots=True)
class NextRun:
    """The place of a resource in a queue: a time, or the position among those that wait."""

    due: datetime | None = None
    position: int | None = None
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Queues:
    """The queues of the operators that answer; `reason` is why none does, else empty.

    `invalid` has those that gave no valid answer.
    """

    items: tuple[Json, ...] = ()
    reason: str = ""
    invalid: tuple[str, ...] = ()

    def next_run(self, ref: ObjectRef) -> NextRun | None:
        """Return when a resource runs next, None if no operator has queued it."""
        return next((next_run_of(each) for each in self.items if _is_about(each, ref)), None)


async def read_queues(api: Api, namespace: str, work_dir: Path | None = None) -> Queues:
    """Return the queues of all operators of the cluster that answer, or of that of `work_dir`.

    Does not raise ApiError.
    """
    async with find_operators(api, namespace, work_dir) as operators:
        items = await operators.collect("/queue", check_queue_entry)
        reason = "" if operators.clients else operators.reason
        return Queues(tuple(items), reason, tuple(operators.invalid))


def _is_about(item: Json, ref: ObjectRef) -> bool:
    kind = {"group": ref.gvk.group, "kind": ref.gvk.kind}
    return matches(item["resource"], {**kind, "namespace": ref.namespace, "name": ref.name})


def next_run_of(item: Json) -> NextRun:
    """Return the place of an entry of a queue, as `check_queue_entry` returns it."""
    causes: Iterable[Json] = item.get("causes") or ()
    words = [": ".join(filter(None, (each["trigger"], each.get("detail")))) for each in causes]
    due = item.get("due")
    time = None if due is None else datetime.fromisoformat(due)
    return NextRun(time, item.get("position"), "; ".join(words))
