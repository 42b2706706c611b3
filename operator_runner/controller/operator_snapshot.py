"""State of the running operator for the HTTP API: identity, queue, schedules, dependents."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from operator_runner import __version__
from operator_runner.controller.sources.dependents import Dependents
from operator_runner.controller.sources.schedule import Schedules
from operator_runner.controller.workqueue import WorkQueue
from operator_runner.core.model import Json, ObjectRef, Watch
from operator_runner.core.resource_states import ResourceStates
from operator_runner.reconcile.drift import drift_entries
from operator_runner.telemetry.runs.api import DriftEntry, QueueEntry, ScheduleEntry


@dataclass(frozen=True, slots=True)
class OperatorSnapshot:
    """Implements `telemetry.runs.api.OperatorView`."""

    watches: Sequence[Watch]
    namespaces: Sequence[str]
    is_leading: Callable[[], bool]
    work_queue: WorkQueue
    ticks: Schedules
    owned: Dependents
    states: ResourceStates
    read_output: Callable[[ObjectRef, str], Awaitable[str]]

    def identity(self) -> Json:
        """Return name, version, kinds and leadership of this replica."""
        return {
            "name": "operator-runner",
            "version": __version__,
            "host": socket.gethostname(),
            "leading": self.is_leading(),
            "namespaces": list(self.namespaces),
            "kinds": list(map(_kind, self.watches)),
        }

    def queue(self) -> Sequence[QueueEntry]:
        """Return the resources that run, wait or are due later."""
        return self.work_queue.snapshot()

    def schedules(self) -> Sequence[ScheduleEntry]:
        """Return the resources with a schedule."""
        return self.ticks.entries()

    def drifts(self) -> Sequence[DriftEntry]:
        """Return the resources with drift, or for which that is unknown."""
        return drift_entries(self.states)

    def dependents(self) -> Sequence[tuple[ObjectRef, Sequence[ObjectRef]]]:
        """Return each resource with the objects that its runs have created or read."""
        return sorted(self.owned.by_owner().items(), key=lambda each: str(each[0]))

    async def output(self, ref: ObjectRef, run_id: str) -> str:
        """Return the output of a finished run from its artifacts, empty if they are not kept."""
        return await self.read_output(ref, run_id)


def _kind(watch: Watch) -> Json:
    """Return the kind of a watch, with its label selector and `when` if it has them."""
    kind: Json = {"apiVersion": watch.gvk.api_version, "kind": watch.gvk.kind}
    if watch.when is not None:
        kind["when"] = watch.when
    selector = {
        "matchLabels": dict(watch.selector.match_labels),
        "matchExpressions": [
            {"key": each.key, "operator": each.operator, "values": list(each.values)}
            for each in watch.selector.match_expressions
        ],
    }
    chosen = {name: value for name, value in selector.items() if value}
    return {**kind, "selector": chosen} if chosen else kind
