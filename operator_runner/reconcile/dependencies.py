"""Everything that a reconciler calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime

from operator_runner.core.fencing import Fences
from operator_runner.core.model import GVK, Json, ObjectRef, Watch
from operator_runner.core.timetable import Timetable
from operator_runner.kube.object_readiness import DependentsReadiness
from operator_runner.reconcile.expression_conditions import ExpressionConditions
from operator_runner.reconcile.other_writers import OtherWriters
from operator_runner.reconcile.preview import Preview
from operator_runner.reconcile.protocols import (
    Access,
    ClusterClient,
    Executor,
    NoRunRecords,
    RunRecords,
    VariableNames,
    WriteRecorder,
)
from operator_runner.reconcile.pruning import PruneFunction


@dataclass(frozen=True, slots=True)
class Dependencies:
    """Everything that a reconciler calls; `protocols` documents each."""

    cluster: ClusterClient
    access: Access
    executor: Executor
    is_selected: Callable[[Json, Watch], bool]
    """Return whether the watch's selector and `when` match a resource."""
    is_deselected: Callable[[Json, Watch], bool]
    """Return whether they no longer match a resource that has been run."""
    latest_version: Callable[[ObjectRef], str]
    """Return the newest resourceVersion seen in events, empty if none; it saves a GET."""
    on_task_end: Callable[[GVK, str, str, float], None]
    """Called with kind, task name, action and duration in seconds of each finished task."""
    run_guard: Callable[[Json, Watch], AbstractAsyncContextManager[None]]
    """Entered around each run, with the resource as it was when the run began."""
    on_replaced: Callable[[ObjectRef], None]
    """Called when a new resource has the name of a deleted one."""
    variable_names: VariableNames
    writes: WriteRecorder
    on_idempotence: Callable[[ObjectRef, bool], None]
    """Called after each successful run with whether the role is idempotent, as far as is known."""
    other_writers: OtherWriters
    """Shared by all reconcilers, because a kind may be watched in several versions."""
    timetable: Callable[[Json, Watch], Timetable | None] = lambda *_: None
    """Return the timetable of a resource, None without one. Raises ValueError if it is invalid."""
    on_missed_tick: Callable[[GVK], None] = lambda _: None
    """Called with the kind for each tick that is older than its deadline."""
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    """The wall clock, for schedules."""
    dependents: Callable[[ObjectRef], Sequence[Json]] = lambda _: ()
    """Return the objects that a resource owns, as last seen, for its declared status."""
    readiness: Callable[..., DependentsReadiness] = lambda *_: DependentsReadiness()
    """Return whether the objects that a resource owns are ready, for `kstatus` and `status`.

    Called with the resource, and kind and name of an object to report first.
    """
    catching_up: Callable[[ObjectRef], Awaitable[None] | None] = lambda _: None
    """Return a wait of a moment for objects whose status is about an older spec; None without."""
    on_suspension: Callable[[ObjectRef, bool], None] = lambda *_: None
    """Called with whether a resource is suspended, at each reconcile."""
    preview: Callable[[Json, Watch], Awaitable[Preview]] | None = None
    """Return what a run of a resource would change."""
    prune: PruneFunction | None = None
    """Delete what a run no longer wants; None where nothing is ever deleted."""
    on_pruned: Callable[[GVK, int], None] = lambda *_: None
    """Called with the kind of a resource and the number of objects that were pruned."""
    on_drift: Callable[[ObjectRef, bool], None] = lambda *_: None
    """Called with whether objects of a resource are known to differ from what it asks for."""
    expressions: ExpressionConditions = field(default_factory=ExpressionConditions)
    """The expressions of watches that fail, shared by all reconcilers."""
    fences: Fences = field(default_factory=Fences)
    """Permit the writes of runs; the cluster and the access have the same ones."""
    claim: Callable[[str], bool] = lambda _: True
    """Return whether the current task may reconcile the resource with this uid."""
    records: RunRecords = field(default_factory=NoRunRecords)
    without_slot: Callable[[ObjectRef], AbstractAsyncContextManager[None]] = lambda _: nullcontext()
    """Entered with a resource on which is only reported: other resources may run meanwhile."""
    free_slot: Callable[[ObjectRef], None] = lambda _: None
    """Called with a resource that only waits, and is reported then: others may run meanwhile."""
    run_environment: Callable[[str], Mapping[str, str]] = lambda _: {}
    """Called with the id of each run that starts; return further variables of its processes."""
