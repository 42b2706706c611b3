"""Read the past and current runs of resources: records of operators, and Events of the cluster.

All commands and the page read runs here, in one format: that of a record, as `check_run` returns
it. Operators that answer have every run that they keep. Events have the runs of the last hour that
changed something or failed, also those of operators that are down or of earlier Pods, and findings
such as a loop. See docs/adr/0071-one-store-of-runs.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta

from operator_runner.core.errors import Forbidden
from operator_runner.core.labels import field_selector
from operator_runner.core.model import Json
from operator_runner.kube.api import Api, list_pages
from operator_runner.kube.cluster import (
    CAUSE_ANNOTATION,
    CONTROLLER,
    DURATION_ANNOTATION,
    RUN_ANNOTATION,
)
from operator_runner.telemetry.runs.received import check_run
from operator_runner.telemetry.runs.records import timestamp
from operator_runner.tools.operator_api.discovery import Operators
from operator_runner.tools.run_lines import FAILED

_OUTCOMES = {
    "Successful": "succeeded",
    "Failed": FAILED,
    "ReconcileLoop": "looping",
    "NotIdempotent": "not idempotent",
    "LongTask": "long task",
}
"""By the reason of an Event; others are the reason."""
_ENDS = {"Successful", "Failed", "Deselected"}
"""Reasons of the Events about the end of a run."""
_REFERENCE = ("apiVersion", "kind", "name", "namespace", "uid")


async def read_records(operators: Operators, query: Mapping[str, str]) -> list[Json]:
    """Return the runs of operators that a query of the API selects, as `newest` does."""
    return newest(await operators.collect("/runs", check_run, dict(query)))


def newest(found: Iterable[Json]) -> list[Json]:
    """Return each run once, as the first operator has it; the run that started last is first."""
    first: dict[str, Json] = {}
    for each in found:
        first.setdefault(each["id"], each)
    return sorted(first.values(), key=lambda each: str(each["started"]), reverse=True)


def event_places(namespace: str | None) -> Collection[str]:
    """Return where Events about all resources of a namespace are, empty for all namespaces.

    Those about cluster-scoped resources are in `default`.
    """
    return [""] if namespace is None else dict.fromkeys((namespace, "default"))


async def read_events(
    api: Api, places: Iterable[str], name: str = "", *, required: bool = False
) -> list[Json]:
    """Return the Events of operators in namespaces, see `event_places`, as `record_of` does.

    `name` selects those about resources of this name. Malformed ones, which others have written,
    are left out. Without permission there are none, unless they are `required`. Raises ApiError.
    """
    selectors = [field_selector("reportingController", CONTROLLER)]
    selectors += [field_selector("regarding.name", name)] if name else []
    params = {"fieldSelector": ",".join(selectors)}
    found: list[Json] = []
    for place in places:
        path = f"/apis/events.k8s.io/v1{place and f'/namespaces/{place}'}/events"
        try:
            async for page in list_pages(api, path, params=params):
                found += page["items"]
        except Forbidden:
            if required:
                raise
    return [record for each in found if (record := record_of(each)) is not None]


def record_of(event: Json) -> Json | None:
    """Return an Event (events.k8s.io/v1) as a record; None if it lacks what operators write.

    Its causes are one text. Beside the fields of a record it has `reason`, `count` and `first`, the
    number in its series and the time of the first one, and `replica`, the Pod. `id` is empty for a
    finding without a run.
    """
    try:
        annotations = event["metadata"].get("annotations") or {}
        series, regarding = event.get("series") or {}, event.get("regarding") or {}
        first = datetime.fromisoformat(event["eventTime"])
        ended = datetime.fromisoformat(series.get("lastObservedTime") or event["eventTime"])
        resource = {key: str(regarding[key]) for key in _REFERENCE if regarding.get(key)}
        if None in {first.tzinfo, ended.tzinfo} or not resource.keys() >= {*_REFERENCE[:3]}:
            return None
        cause, seconds = annotations.get(CAUSE_ANNOTATION), annotations.get(DURATION_ANNOTATION)
        is_warning, reason, note = event["type"] == "Warning", event["reason"], event["note"]
        return {
            "id": annotations.get(RUN_ANNOTATION, ""),
            "resource": resource,
            "outcome": _OUTCOMES.get(reason, reason),
            "reason": reason,
            "started": timestamp(ended - timedelta(seconds=float(seconds or 0.0))),
            "finished": timestamp(ended),
            "first": timestamp(first),
            "seconds": float(seconds) if seconds else None,
            "causes": [{"trigger": cause}] if cause else [],
            "message": (note.rpartition(" (why: ")[0] or note) if is_warning else "",
            "count": int(series.get("count") or 1),
            "replica": event.get("reportingInstance") or "",
        }
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None


def unrecorded(events: Iterable[Json], records: Iterable[Json]) -> list[Json]:
    """Return the Events about runs that are not among the records, and all findings."""
    ids = {each["id"] for each in records}
    return [each for each in events if each["reason"] not in _ENDS or each["id"] not in ids]


def regards(resource: Json, uid: str | None) -> bool:
    """Return whether a resource of a run has this uid, not a deleted one of the same name.

    Whatever is unknown is taken for the same.
    """
    return uid is None or resource.get("uid") in {None, uid}
