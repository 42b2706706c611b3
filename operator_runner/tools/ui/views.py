"""Build the views of the page from what was read of the cluster and of operators. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime

from operator_runner.core.errors import ConfigError
from operator_runner.core.model import GVK, Json, ObjectRef
from operator_runner.reconcile.annotations import wants_suspension
from operator_runner.telemetry.runs.records import causes_text, object_json
from operator_runner.tools.operator_api.run_history import unrecorded
from operator_runner.tools.operator_api.watched_kinds import Queues, WatchedKind, exclusion
from operator_runner.tools.resources.cluster import kind_name
from operator_runner.tools.resources.summary import (
    Summary,
    SummarySources,
    by_resource,
    time_of,
)
from operator_runner.tools.run_lines import RunLine, message_of, with_repetitions
from operator_runner.tools.runs.html_report import timeline

_LOOP_REASONS = frozenset({"ReconcileLoop", "NotIdempotent"})
_KEY_PARTS = 3


@dataclass(slots=True)
class ObservedCluster:
    """The last state. `reason` is why no operator answers, `fault` why the cluster does not.

    `runs` are those of operators, newest first; `events` are records, too.
    """

    bodies: dict[ObjectRef, Json] = field(default_factory=dict)
    events: list[Json] = field(default_factory=list)
    operators: list[str] = field(default_factory=list)
    queue: list[Json] = field(default_factory=list)
    schedules: list[Json] = field(default_factory=list)
    drifts: list[Json] = field(default_factory=list)
    runs: list[Json] = field(default_factory=list)
    reason: str = ""
    fault: str = ""
    warnings: list[str] = field(default_factory=list)
    watched: frozenset[WatchedKind] = frozenset()
    ambiguous_kinds: frozenset[str] = frozenset()
    """Names of kinds, in lower case, that are in several groups."""


def key_of(resource: Json) -> str:
    """Return `page.debug.example.com/default/home`, which identifies a resource in all views."""
    gvk = GVK.of(str(resource["apiVersion"]), str(resource["kind"]))
    return f"{kind_name(gvk)}/{resource.get('namespace') or ''}/{resource['name']}"


def parse_key(key: str) -> tuple[str, str, str]:
    """Return kind, namespace and name of a key. Raises ConfigError."""
    parts = key.split("/")
    if len(parts) != _KEY_PARTS or not parts[0] or not parts[2]:
        raise ConfigError(f"invalid resource {key!r}: expected KIND/NAMESPACE/NAME")
    return parts[0], parts[1], parts[2]


def views(observed: ObservedCluster, namespace: str | None, now: datetime) -> dict[str, Json]:
    """Return all views by name. Times are in UTC; unknown fields are omitted."""
    queued = {key_of(each["resource"]): each for each in observed.queue}
    lists = {
        "resources": _resources(observed, now),
        "queue": map(_queued, observed.queue),
        "schedules": (_known(_about(each), each) for each in observed.schedules),
        "runs": run_rows(observed.runs, now),
        "loops": _loops(observed.events, queued),
    }
    return {
        "state": {
            "operators": observed.operators,
            "reason": observed.reason,
            "fault": observed.fault,
            "warnings": observed.warnings,
            "namespace": namespace,
        },
        **{
            name: {"items": [_labelled(each, observed.ambiguous_kinds) for each in items]}
            for name, items in lists.items()
        },
    }


def run_rows(found: Sequence[Json], now: datetime) -> list[Json]:
    """Return rows of runs with their bars on one axis, from the first start to the last end.

    Equal failures of a resource in a row are one, with their number in `count`.
    """
    counted = with_repetitions(found, _repeated)
    found = [run | {"count": count} for run, count in counted]
    starts = [time for each in found if (time := time_of(each.get("started"))) is not None]
    ends = [_end(each, now) for each in found]
    if not starts:
        return []
    first = min(starts)
    axis = {"started": first.isoformat(), "seconds": max((max(ends) - first).total_seconds(), 1.0)}
    placed = [{**each, "seconds": _seconds(each, now)} for each in found]
    bars = timeline(placed, axis, "started", lambda run: ("", "", str(run.get("outcome") or "")))
    return [_run(each, asdict(bar)) for each, bar in zip(found, bars, strict=True)]


def resource_view(
    key: str,
    observed: ObservedCluster,
    runs: Sequence[Json],
    objects: Iterable[Json],
    now: datetime,
) -> Json:
    """Return why a resource ran: its runs, what is next, and the objects of its runs."""
    ref, body = next(
        ((ref, body) for ref, body in observed.bodies.items() if _is(ref, key)), (None, None)
    )
    events = [each for each in observed.events if key_of(each["resource"]) == key]
    others = map(RunLine.of, unrecorded(events, runs))
    return {
        "key": key,
        "known": body is not None,
        "suspended": body is not None and wants_suspension(body),
        "deleting": body is not None and bool(body["metadata"].get("deletionTimestamp")),
        "exclusion": exclusion(ref, body, observed.watched) if ref and body and not runs else "",
        "runs": run_rows(runs, now),
        "events": [each.as_json() for each in sorted(others, key=lambda e: e.ended, reverse=True)],
        "schedules": [
            _known(_about(each), each)
            for each in observed.schedules
            if key_of(each["resource"]) == key
        ],
        "queue": [_queued(each) for each in observed.queue if key_of(each["resource"]) == key],
        "objects": [_object(each, observed.ambiguous_kinds) for each in objects],
    }


def _labelled(item: Json, ambiguous: Collection[str]) -> Json:
    """Add the name that is shown: `page/home`, or with the group `page.example.com/home`."""
    kind = str(item["kind"]).lower()
    shown = str(item["key"]).partition("/")[0] if kind in ambiguous else kind
    return {**item, "label": f"{shown}/{item['name']}"}


def _object(resource: Json, ambiguous: Collection[str]) -> Json:
    gvk = GVK.of(str(resource["apiVersion"]), str(resource["kind"]))
    kind = gvk.kind_and_group if gvk.kind.lower() in ambiguous else gvk.kind
    return {"key": key_of(resource), **resource, "kind": kind}


def _resources(observed: ObservedCluster, now: datetime) -> list[Json]:
    queues = Queues(tuple(observed.queue), drifts=tuple(observed.drifts), runs=tuple(observed.runs))
    sources = SummarySources(by_resource(observed.events), observed.watched, queues)
    found = [
        _resource(key_of(object_json(ref)), sources.summary(ref, body), now)
        for ref, body in observed.bodies.items()
    ]
    return sorted(found, key=lambda each: str(each["key"]))


def _resource(key: str, summary: Summary, now: datetime) -> Json:
    fields = {
        "key": key,
        **summary.as_json(),
        "retries": summary.retries,
        "why": summary.why_at(now),
    }
    return {name: value for name, value in fields.items() if value not in (None, "", False)}


def _repeated(run: Json) -> tuple[str, str, str]:
    return key_of(run["resource"]), str(run.get("outcome")), message_of(run)


def _run(run: Json, bar: Json) -> Json:
    names = ("id", "outcome", "started", "finished", "seconds", "changed", "operator", "count")
    found = {name: run[name] for name in names if name in run}
    message = {"message": message_of(run)} if "message" in run else {}
    return {**_about(run), **found, **message, "cause": causes_text(run), "bar": bar}


def _queued(entry: Json) -> Json:
    return {**_known(_about(entry), entry), "cause": causes_text(entry)}


def _about(entry: Json) -> Json:
    resource = entry["resource"]
    names = ("kind", "namespace", "name")
    return {"key": key_of(resource), **{n: resource[n] for n in names if n in resource}}


def _known(about: Json, entry: Json) -> Json:
    names = ("state", "position", "since", "due", "failures", "next", "last", "error", "operator")
    return {**about, **{name: entry[name] for name in names if name in entry}}


def _loops(events: Iterable[Json], queued: Mapping[str, Json]) -> list[Json]:
    found = []
    for event in events:
        if event["reason"] not in _LOOP_REASONS:
            continue
        entry = queued.get(key_of(event["resource"]), {})
        # A throttled run waits for the end of its delay.
        next_ = {"due": entry["due"]} if "due" in entry else {}
        line = RunLine.of(event).as_json()
        found.append({**_about(event), **line, "reason": event["reason"], **next_})
    return sorted(found, key=lambda each: str(each["ended"]), reverse=True)


def _is(ref: ObjectRef, key: str) -> bool:
    return key_of(object_json(ref)) == key


def _end(run: Json, now: datetime) -> datetime:
    return time_of(run.get("finished")) or now


def _seconds(run: Json, now: datetime) -> float:
    if "seconds" in run:
        return float(run["seconds"])
    started = time_of(run.get("started"))
    return 0.0 if started is None else max(0.0, (_end(run, now) - started).total_seconds())
