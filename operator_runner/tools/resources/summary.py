"""Summarize a resource of an operator by its status, its annotations and its Events. Pure.

Without conditions, as with `manageStatus: false`, Events and the queue of the operator have the
state.

Resources are not trusted: no function here raises, for any content.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import takewhile
from typing import Any

from operator_runner.core.durations import parse_duration
from operator_runner.core.model import Json, ObjectRef, Trigger, uid_of
from operator_runner.core.timetable import NEXT_FIELD
from operator_runner.reconcile import drift
from operator_runner.reconcile.annotations import wants_suspension
from operator_runner.reconcile.conditions import conditions_by_type
from operator_runner.telemetry.runs.records import RUNNING, causes_text
from operator_runner.tools.operator_api.watched_kinds import (
    NextRun,
    Queues,
    WatchedKind,
    exclusion,
)
from operator_runner.tools.run_lines import RunLine, age, with_short_paths

_READY = ("Ready", "Available", "Successful")
"""The first of these conditions that exists is shown as READY."""
_REQUEUE = re.compile(r"run again in (\S+)$")

_SAME_TIME = timedelta(seconds=2)


class SummaryState(StrEnum):
    """State of a resource according to its status and annotations: the column STATE."""

    UNHANDLED = "Unhandled"
    QUEUED = "Queued"
    RUNNING = "Running"
    WAITING = "Waiting"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    SUSPENDED = "Suspended"
    DELETING = "Deleting"
    DESELECTED = "Deselected"
    DRIFTED = "Drifted"
    DELETED = "Deleted"


_STATES_OF_REASONS = {
    "Successful": SummaryState.SUCCEEDED,
    "Failed": SummaryState.FAILED,
    "Deselected": SummaryState.DESELECTED,
}
"""By the reason of the Event about the end of a run."""

_SCHEDULED = frozenset(
    {SummaryState.SUCCEEDED, SummaryState.FAILED, SummaryState.RUNNING, SummaryState.DRIFTED}
)
"""States of resources whose next tick starts a run."""


_UNDISTURBED = frozenset({SummaryState.SUCCEEDED, SummaryState.UNHANDLED})
"""States of resources without conditions that drift replaces."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The state of one resource; times are None and texts empty where they are unknown.

    `ready` is True, False or Unknown. `last_run` is the end of the last run, or the start of one in
    progress; without an operator, of the last one that changed something or failed. `cause` led to
    it. `message` is that of a failure. `failing_since` is when the failures began. `next_run` is a
    time; `retries` is whether a failed run is retried. Only the operator has `task`, which the run
    executes since `task_since`, `queue_position`, what it waits `behind`, `next_cause` of the next
    run, and `replica`, whose queue it is.
    `drift` is what a run would write, or why that is unknown. `deleted` is when the deletion was
    requested. `exclusion` is why operators may not reconcile the resource; it is shown as long as
    none has handled it.
    """

    ref: ObjectRef
    state: SummaryState
    uid: str = ""
    ready: str = ""
    last_run: datetime | None = None
    run_id: str = ""
    cause: str = ""
    message: str = ""
    failing_since: datetime | None = None
    next_run: datetime | None = None
    retries: bool = False
    task: str = ""
    task_since: datetime | None = None
    queue_position: int | None = None
    behind: str = ""
    next_cause: str = ""
    replica: str = ""
    drift: str = ""
    deleted: datetime | None = None
    has_conditions: bool = True
    """Whether an operator has written its conditions."""
    exclusion: str = ""

    @property
    def why(self) -> str:
        """What is wrong, else the cause of the last run, on one line."""
        if self.state is SummaryState.UNHANDLED:
            return self.problem or "no operator has written its conditions"
        return self.problem or " ".join(self.cause.split())

    def why_at(self, now: datetime) -> str:
        """Return what the resource waits for: its current task, or those before it; else `why`."""
        if self.state is SummaryState.RUNNING and self.task and self.task_since is not None:
            return f"task '{' '.join(self.task.split())}' for {age(now - self.task_since)}"
        if self.behind and not self.problem:
            return f"behind {self.behind}"
        return self.why

    @property
    def problem(self) -> str:
        """A deletion that waits, an exclusion, a failure or drift, on one line; else empty."""
        if self.state is SummaryState.SUSPENDED and self.deleted is not None:
            return "being deleted; no clean-up runs until it is resumed"
        return " ".join((self._message or self.drift).split())

    @property
    def _message(self) -> str:
        return self.exclusion if self.state is SummaryState.UNHANDLED else self.message

    def as_json(self) -> Json:
        """Return the fields that are known, for `--output=json`."""
        fields = {
            "apiVersion": self.ref.gvk.api_version,
            "kind": self.ref.gvk.kind,
            "namespace": self.ref.namespace,
            "name": self.ref.name,
            "state": self.state.value,
            "ready": self.ready,
            "lastRun": _text(self.last_run),
            "runID": self.run_id,
            "cause": self.cause,
            "message": self._message,
            "failingSince": _text(self.failing_since),
            "nextRun": _text(self.next_run),
            "nextCause": self.next_cause,
            "task": self.task,
            "taskStarted": _text(self.task_since),
            "behind": self.behind,
            "queuePosition": self.queue_position,
            "replica": self.replica,
            "drift": self.drift,
            "deletionTimestamp": _text(self.deleted),
        }
        return {name: value for name, value in fields.items() if value}


@dataclass(frozen=True, slots=True)
class SummarySources:
    """What is known of resources beside themselves."""

    events: Mapping[tuple[str, str], Sequence[Json]] = field(default_factory=dict)
    """As `by_resource` returns them."""
    watched: Collection[WatchedKind] = ()
    """What the operators that answer watch."""
    queues: Queues = field(default_factory=Queues)

    def summary(self, ref: ObjectRef, body: Json) -> Summary:
        """Return the summary of a resource."""
        events = self.events.get((uid_of(body), ref.name), ())
        excluded = exclusion(ref, body, self.watched)
        return with_queues(summarize(ref, body, events, excluded), self.queues)


def summarize(
    ref: ObjectRef, body: Json, events: Iterable[Json] = (), exclusion: str = ""
) -> Summary:
    """Return the summary of a resource; `events` are those of its operator about its runs."""
    conditions = conditions_by_type(body)
    events = sorted(events, key=_finished, reverse=True)
    ended = [*map(_completion, conditions.values()), *map(_finished, events)]
    state = _state(body, conditions)
    last_run = max(filter(None, ended), default=None)
    if state is SummaryState.UNHANDLED:
        unhandled = Summary(ref, state, uid=uid_of(body), has_conditions=False, exclusion=exclusion)
        return _summary_of_events(unhandled, events, last_run)
    is_failed = conditions.get("Failure", {}).get("status") == "True"
    ready, failure = conditions.get("Ready", {}), conditions["Failure"] if is_failed else {}
    # What is applied, but not ready.
    message = failure or (ready if ready.get("status") == "False" else {})
    return Summary(
        ref,
        state,
        uid=uid_of(body),
        ready=_ready(conditions),
        last_run=last_run,
        run_id=events[0]["id"] if events else "",
        cause=causes_text(events[0]) if events else "",
        message=with_short_paths(str(message.get("message") or "")),
        failing_since=time_of(failure.get("lastTransitionTime")),
        next_run=_next_run(body, state, conditions, last_run),
        retries=state is SummaryState.FAILED,
        drift=with_short_paths(drift.message(conditions.values())),
        deleted=time_of(body["metadata"].get("deletionTimestamp")),
    )


def _summary_of_events(summary: Summary, events: Sequence[Json], time: datetime | None) -> Summary:
    """Return the summary of a resource without conditions; Events are the newest first."""
    runs = [each for each in events if each["reason"] in _STATES_OF_REASONS]
    if not runs:
        return summary
    state = _STATES_OF_REASONS[runs[0]["reason"]]
    found = replace(
        summary,
        state=state,
        last_run=time,
        run_id=runs[0]["id"],
        cause=causes_text(runs[0]),
        retries=state is SummaryState.FAILED,
    )
    if state is not SummaryState.FAILED:
        return found
    failures = takewhile(lambda each: each["reason"] == runs[0]["reason"], runs)
    since = min(datetime.fromisoformat(each["first"]) for each in failures)
    return replace(found, message=RunLine.of(runs[0]).note, failing_since=since)


def with_next_run(summary: Summary, next_run: NextRun | None) -> Summary:
    """Return a summary with what the queue of an operator has; an earlier tick stays."""
    if next_run is None or summary.state is SummaryState.SUSPENDED:
        return summary
    if not summary.has_conditions:
        summary = _with_queue_state(summary, next_run)
    times = [each for each in (summary.next_run, next_run.due) if each is not None]
    return replace(
        summary,
        next_run=min(times, default=None),
        queue_position=next_run.position,
        behind=next_run.behind,
        next_cause=next_run.cause,
        replica=next_run.replica,
    )


def _with_queue_state(summary: Summary, next_run: NextRun) -> Summary:
    """Return the summary of a resource without conditions that an operator has in its queue."""
    if next_run.state == "Running":
        return replace(summary, state=SummaryState.RUNNING, retries=False)
    if next_run.failures:
        return replace(summary, state=SummaryState.FAILED, retries=True)
    if next_run.state == "Queued" and summary.state is SummaryState.UNHANDLED:
        return replace(summary, state=SummaryState.QUEUED)
    if next_run.state != "Delayed":
        return summary
    is_waiting = next_run.cause.startswith(Trigger.REQUEUE.value)
    state = SummaryState.WAITING if is_waiting else SummaryState.SUCCEEDED
    return replace(summary, state=state, message="", failing_since=None, retries=False)


def with_drift(summary: Summary, entry: Json | None) -> Summary:
    """Return the summary of a resource without conditions with the drift that an operator has."""
    if entry is None or summary.has_conditions or summary.state not in _UNDISTURBED:
        return summary
    state = SummaryState.DRIFTED if entry["status"] == "True" else summary.state
    return replace(summary, state=state, drift=with_short_paths(entry["message"]))


def with_last_run(summary: Summary, run: Json | None) -> Summary:
    """Return a summary with the last run that an operator has, unless an Event is about a later."""
    time = None if run is None else time_of(run.get("finished") or run["started"])
    if run is None or time is None:
        return summary
    if summary.last_run is not None and time < summary.last_run - _SAME_TIME:
        return summary
    task = (run.get("task") or {}) if run["outcome"] == RUNNING else {}
    return replace(
        summary,
        last_run=time,
        run_id=run["id"],
        cause=causes_text(run),
        task=task.get("name") or task.get("action") or "",
        task_since=time_of(task.get("started")),
    )


def with_queues(summary: Summary, queues: Queues) -> Summary:
    """Return a summary with what operators have about the resource."""
    ref = summary.ref
    summary = with_last_run(summary, queues.last_run(ref, summary.uid))
    return with_drift(with_next_run(summary, queues.next_run(ref)), queues.drift(ref))


def is_same(one: Summary, other: Summary | None) -> bool:
    """Return whether both show the same to a user.

    Times of next runs differ by how long their request to the operator took. Tasks of one run are
    not changes of the resource.
    """
    if other is None:
        return False
    unlike = {"next_run": None, "task": "", "task_since": None}
    if replace(one, **unlike) != replace(other, **unlike):  # type: ignore[arg-type] # mixed
        return False
    if one.next_run is None or other.next_run is None:
        return one.next_run is other.next_run
    return abs(one.next_run - other.next_run) < _SAME_TIME


def _state(body: Json, conditions: Mapping[str, Json]) -> SummaryState:
    running = conditions.get("Running", {})
    is_running = running.get("status") == "True" and running.get("reason") == "Running"
    is_waiting = is_running and _REQUEUE.search(str(running.get("message"))) is not None
    states = {
        SummaryState.SUSPENDED: wants_suspension(body),
        SummaryState.DELETING: bool(body["metadata"].get("deletionTimestamp")),
        SummaryState.WAITING: is_waiting,
        SummaryState.RUNNING: is_running,
        SummaryState.DESELECTED: running.get("reason") == "Deselected",
        SummaryState.FAILED: conditions.get("Failure", {}).get("status") == "True",
        SummaryState.DRIFTED: drift.is_drifted(conditions.values()),
        SummaryState.SUCCEEDED: conditions.get("Successful", {}).get("status") == "True",
    }
    return next((state for state, is_it in states.items() if is_it), SummaryState.UNHANDLED)


def _ready(conditions: Mapping[str, Json]) -> str:
    found = next((conditions[type_] for type_ in _READY if type_ in conditions), {})
    return str(found.get("status") or "")


def _next_run(
    body: Json, state: SummaryState, conditions: Mapping[str, Json], last_run: datetime | None
) -> datetime | None:
    """Return the next tick of a schedule, or the time for which the role asked."""
    if state is SummaryState.WAITING and last_run is not None:
        found = _REQUEUE.search(str(conditions["Running"].get("message")))
        assert found is not None
        return last_run + _duration(found[1])
    if state not in _SCHEDULED:
        return None
    status = body.get("status")
    return time_of(status.get(NEXT_FIELD)) if isinstance(status, dict) else None


def _completion(condition: Json) -> datetime | None:
    recap = condition.get("ansibleResult")
    return time_of(recap.get("completion")) if isinstance(recap, dict) else None


def _finished(event: Json) -> datetime:
    return datetime.fromisoformat(event["finished"])


def _duration(text: str) -> timedelta:
    try:
        return parse_duration(text)
    except ValueError:
        return timedelta(0)


def time_of(text: Any) -> datetime | None:
    """Read a time of the API, in UTC unless it has a zone; None if it is missing or invalid."""
    try:
        time = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def _text(time: datetime | None) -> str:
    return "" if time is None else time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def by_resource(events: Sequence[Json]) -> dict[tuple[str, str], list[Json]]:
    """Return Events about runs by uid and name of their resource."""
    found: dict[tuple[str, str], list[Json]] = {}
    for event in events:
        if event["id"]:
            resource = event["resource"]
            found.setdefault((resource.get("uid", ""), resource["name"]), []).append(event)
    return found
