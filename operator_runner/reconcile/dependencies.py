"""Everything that a reconciler calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime

from operator_runner.core.fencing import Fences
from operator_runner.core.model import Json, ObjectRef, Watch
from operator_runner.core.resource_states import ResourceStates
from operator_runner.reconcile import protocols
from operator_runner.reconcile.expression_conditions import ExpressionConditions
from operator_runner.reconcile.other_writers import OtherWriters
from operator_runner.reconcile.preview import Preview
from operator_runner.telemetry.metrics import Metrics
from operator_runner.telemetry.runs.records import RunStore
from operator_runner.telemetry.tracing.run_spans import Traces


@dataclass(frozen=True, slots=True)
class Dependencies:
    """Everything that a reconciler calls; `protocols` documents each part."""

    cluster: protocols.ClusterClient
    access: protocols.Access
    executor: protocols.Executor
    dependents: protocols.ObservedDependents
    metrics: Metrics
    records: RunStore
    queue: protocols.Queue
    variable_names: protocols.VariableNames
    other_writers: OtherWriters
    """Shared by all reconcilers, because a kind may be watched in several versions."""
    latest_version: Callable[[ObjectRef], str]
    """Return the newest resourceVersion seen in events, empty if none; it saves a GET."""
    run_guard: Callable[[Json, Watch], AbstractAsyncContextManager[None]] | None = None
    """Entered around each run, with the resource as it was when the run began."""
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    """The wall clock, for schedules."""
    preview: Callable[[Json, Watch], Awaitable[Preview]] | None = None
    """Return what a run of a resource would change."""
    expressions: ExpressionConditions = field(default_factory=ExpressionConditions)
    """The expressions of watches that fail, shared by all reconcilers."""
    states: ResourceStates = field(default_factory=ResourceStates)
    """What is known of each resource."""
    fences: Fences = field(default_factory=Fences)
    """Permit the writes of runs; the cluster and the access have the same ones."""
    claim: Callable[[str], bool] | None = None
    """With shards: return whether the current task may reconcile the resource with this uid."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of the processes of runs."""
    traces: Traces | None = None
    """Traces of runs, if they are on."""
