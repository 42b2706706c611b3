"""The views of the page, from what was read of the cluster and of operators."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from operator_runner.core.errors import ConfigError
from operator_runner.core.model import GVK, Json, ObjectRef
from operator_runner.tools.operator_api.run_history import newest, record_of
from operator_runner.tools.operator_api.watched_kinds import WatchedKind
from operator_runner.tools.ui.views import (
    ObservedCluster,
    key_of,
    parse_key,
    resource_view,
    run_rows,
    views,
)

NOW = datetime(2026, 1, 1, 12, 0, 30, tzinfo=UTC)
PAGE = GVK.of("example.com/v1", "Page")
KEY = "page.example.com/web/home"


def resource(name: str = "home", version: str = "v1") -> Json:
    return {
        "apiVersion": f"example.com/{version}",
        "kind": "Page",
        "namespace": "web",
        "name": name,
    }


def run(id_: str, second: int, **fields: Any) -> Json:
    return {
        "id": id_,
        "resource": resource(),
        "outcome": "succeeded",
        "started": f"2026-01-01T12:00:{second:02}.000Z",
        "finished": f"2026-01-01T12:00:{second + 5:02}.000Z",
        "seconds": 5.0,
        "causes": [{"trigger": "spec", "detail": "spec.title"}],
        **fields,
    }


def body(*conditions: Json) -> Json:
    return {
        "metadata": {"name": "home", "namespace": "web", "uid": "1"},
        "status": {"conditions": list(conditions)},
    }


def event(reason: str) -> Json:
    """Return an Event as a record."""
    found = record_of(
        {
            "metadata": {},
            "reason": reason,
            "type": "Warning",
            "note": "too often",
            "eventTime": "2026-01-01T12:00:00.000000Z",
            "series": {"count": 3, "lastObservedTime": "2026-01-01T12:00:20.000000Z"},
            "regarding": {**resource(), "uid": "1"},
        }
    )
    assert found is not None
    return found


def observed(**fields: Any) -> ObservedCluster:
    return ObservedCluster(bodies={ObjectRef(PAGE, "web", "home"): body()}, **fields)


def test_resources_have_cause_and_run_of_their_newest_run() -> None:
    """An operator that answers has more runs than Events."""
    seen = observed(operators=["here"], runs=[run("2", 10), run("1", 0)])
    [row] = views(seen, None, NOW)["resources"]["items"]
    assert (row["key"], row["runID"], row["cause"]) == (KEY, "2", "spec: spec.title")
    assert row["lastRun"] == "2026-01-01T12:00:15Z"


def test_drift_is_shown_in_place_of_the_cause_of_the_last_run() -> None:
    """As the message of a failure is; the cause has its own column."""
    drifted = {
        "type": "Drifted",
        "status": "True",
        "reason": "ObjectsDiffer",
        "message": "A run would write: ConfigMap web/home changed",
    }
    bodies = {ObjectRef(PAGE, "web", "home"): body(drifted)}
    seen = ObservedCluster(bodies=bodies, operators=["here"], runs=[run("1", 0)])
    [row] = views(seen, None, NOW)["resources"]["items"]
    assert (row["state"], row["why"]) == ("Drifted", drifted["message"])


def test_drift_of_a_resource_without_conditions_is_that_of_an_operator() -> None:
    """With `manageStatus: false` the resource has no condition."""
    drift = {"resource": resource(), "status": "True", "message": "A run would write: ..."}
    seen = observed(operators=["here"], runs=[run("1", 0)], drifts=[drift])
    [row] = views(seen, None, NOW)["resources"]["items"]
    assert (row["state"], row["why"]) == ("Drifted", drift["message"])


def test_the_queue_names_the_next_run_of_a_resource() -> None:
    """Whatever version of the kind the operator watches."""
    entry = {
        "resource": resource(version="v2"),
        "state": "Delayed",
        "due": "2026-01-01T13:00:00Z",
        "causes": [{"trigger": "period"}],
    }
    failed = {"type": "Failure", "status": "True", "message": "no", "lastTransitionTime": "x"}
    seen = ObservedCluster(
        bodies={ObjectRef(PAGE, "web", "home"): body(failed)}, operators=["here"], queue=[entry]
    )
    found = views(seen, "web", NOW)
    [row] = found["resources"]["items"]
    assert (row["nextRun"], row["state"], row["message"]) == (
        "2026-01-01T13:00:00Z",
        "Failed",
        "no",
    )
    assert [(each["key"], each["cause"]) for each in found["queue"]["items"]] == [(KEY, "period")]


def test_runs_share_one_axis() -> None:
    """From the start of the first to the end of the last; one in progress reaches until now."""
    last = run("2", 20, outcome="running")
    del last["finished"], last["seconds"]
    rows = views(observed(operators=["here"], runs=[last, run("1", 0)]), None, NOW)["runs"]["items"]
    places = [(each["id"], each["bar"]["left"], each["bar"]["width"]) for each in rows]
    assert places == [("2", pytest.approx(66.67), pytest.approx(33.33)), ("1", 0.0, 16.67)]


def test_equal_failures_in_a_row_are_one() -> None:
    """With the task in the message, as `why` has it; another failure or resource is another row."""
    failed = {"outcome": "failed", "message": "no", "failedTask": {"name": "Write"}}
    other = {"resource": resource() | {"name": "shop"}}
    runs = [
        run("1", 0, **failed),
        run("2", 6, **failed),
        run("3", 12, **failed | other),
        run("4", 18, **failed),
        run("5", 24, **failed | {"message": "never"}),
        run("6", 30),
        run("7", 36),
    ]
    rows = run_rows(newest(runs), NOW)
    assert [(each["id"], each["count"]) for each in rows] == [
        *(("7", 1), ("6", 1), ("5", 1), ("4", 3), ("3", 1)),
    ]
    assert rows[3]["message"] == "no (task 'Write')"


def test_loops_are_those_that_events_report() -> None:
    """With the end of the delay, if the run is throttled now."""
    delayed = {"resource": resource(), "state": "Delayed", "due": "2026-01-01T12:01:00Z"}
    seen = observed(events=[event("ReconcileLoop"), event("Failed")], queue=[delayed])
    [row] = views(seen, None, NOW)["loops"]["items"]
    assert (row["key"], row["count"], row["due"]) == (KEY, 3, "2026-01-01T12:01:00Z")
    assert row["message"] == "too often"


def test_a_resource_has_its_runs_other_events_and_objects() -> None:
    """Those of other resources are not in it."""
    other = event("ReconcileLoop")
    other["resource"]["name"] = "shop"
    seen = observed(operators=["here"], events=[event("ReconcileLoop"), other])
    config = {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "web", "name": "home"}
    found = resource_view(KEY, seen, [run("1", 0)], [config], NOW)
    assert [each["id"] for each in found["runs"]] == ["1"]
    assert [each["outcome"] for each in found["events"]] == ["looping"]
    assert [each["key"] for each in found["objects"]] == ["configmap/web/home"]
    assert found["known"]


def test_a_resource_without_runs_has_the_reason_of_its_exclusion() -> None:
    """In the list, and where a click asks why."""
    seen = observed(watched=frozenset({WatchedKind(PAGE.group, PAGE.kind, when="spec.on")}))
    reason = "reconciled only if `when` is true: spec.on"
    [row] = views(seen, None, NOW)["resources"]["items"]
    assert (row["state"], row["why"]) == ("Unhandled", reason)
    assert resource_view(KEY, seen, [], [], NOW)["exclusion"] == reason
    assert resource_view(KEY, seen, [run("1", 0)], [], NOW)["exclusion"] == ""


def test_a_key_names_a_resource() -> None:
    """Also one without a namespace; anything else is a ConfigError."""
    assert parse_key(key_of(resource())) == ("page.example.com", "web", "home")
    cluster_scoped = {"apiVersion": "v1", "kind": "Node", "name": "a"}
    assert parse_key(key_of(cluster_scoped)) == ("node", "", "a")
    for invalid in ("", "a", "a/b", "a/b/", "a/b/c/d"):
        with pytest.raises(ConfigError, match="expected KIND/NAMESPACE/NAME"):
            parse_key(invalid)


def test_kinds_of_one_name_in_two_groups_have_labels_with_the_group() -> None:
    """In all lists, and objects too; other kinds have their name alone."""
    config = {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "web", "name": "home"}
    fields = {"operators": ["here"], "events": [event("ReconcileLoop")], "runs": [run("1", 0)]}
    entry = {"resource": resource(), "state": "Queued"}
    alone = observed(**fields, queue=[entry], schedules=[entry])
    several = observed(
        **fields, queue=[entry], schedules=[entry], ambiguous_kinds=frozenset({"page"})
    )
    for seen, label in ((alone, "page/home"), (several, "page.example.com/home")):
        found = views(seen, None, NOW)
        for name in ("resources", "queue", "schedules", "runs", "loops"):
            assert [each["label"] for each in found[name]["items"]] == [label], name
        shown = resource_view(KEY, seen, [], [resource(), config], NOW)
        kinds = "Page" if seen is alone else "Page.example.com"
        assert [each["kind"] for each in shown["objects"]] == [kinds, "ConfigMap"]
