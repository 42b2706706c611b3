"""Several versions of one kind: one of the watches serves a resource."""

from __future__ import annotations

from dataclasses import replace

import pytest

from operator_runner.config.watches.selection import belongs_to, cleans_up, with_watched_versions
from operator_runner.core.model import (
    GVK,
    TEST_ANNOTATION,
    Finalizer,
    Json,
    RunContent,
    Watch,
)

KINDS = [("a.com", "v1", "Web"), ("b.com", "v1", "Web"), ("a.com", "v2", "Web")]
OLD, OTHER, NEW = with_watched_versions([Watch(GVK(*kind), RunContent()) for kind in KINDS])
SPEC: Json = {"f:spec": {"f:size": {}}}
LABEL: Json = {"f:metadata": {"f:labels": {"f:a": {}}}}
LOST: Json = {"f:spec": {}}
OTHERS: Json = {"f:spec": {"f:color": {}}}
APPLIED: Json = {
    "f:metadata": {"f:annotations": {"f:kubectl.kubernetes.io/last-applied-configuration": {}}}
}
STATUS: Json = {"f:status": {"f:ready": {}}}


def entry(version: str, time: str, fields: Json, **more: str) -> Json:
    return {"apiVersion": f"a.com/{version}", "time": time, "fieldsV1": fields, **more}


def body(*managed: Json) -> Json:
    return {"metadata": {"name": "web", "managedFields": list(managed)}}


@pytest.mark.parametrize(
    ("resource", "version"),
    [
        (body(entry("v1", "t1", SPEC)), "v1"),
        (body(entry("v2", "t1", SPEC)), "v2"),
        (body(entry("v2", "t2", SPEC), entry("v1", "t1", SPEC)), "v2"),
        (body(entry("v1", "t1", SPEC), entry("v2", "t2", LABEL)), "v1"),
        (body(entry("v1", "t1", SPEC), entry("v2", "t2", STATUS, subresource="status")), "v1"),
        (body(entry("v2", "t1", LABEL), entry("v1", "t2", LABEL)), "v2"),
        (body(entry("v1", "t1", LOST), entry("v2", "t1", SPEC)), "v2"),
        (body(entry("v1", "t1", SPEC), entry("v2", "t1", LOST)), "v1"),
        (body(entry("v1", "t1", SPEC | APPLIED), entry("v2", "t1", OTHERS)), "v1"),
        (body(entry("v1", "t1", OTHERS), entry("v2", "t1", SPEC | APPLIED)), "v2"),
        (body(entry("v1", "t2", OTHERS), entry("v2", "t1", SPEC | APPLIED)), "v1"),
        (body(entry("v3", "t1", SPEC)), "v1"),
        (body(), "v1"),
        ({"metadata": {"name": "web"}}, "v1"),
    ],
)
def test_one_version_serves_a_resource(resource: Json, version: str) -> None:
    """That in which its spec was last written; else the first one in the file."""
    assert [watch.gvk.version for watch in (OLD, NEW) if belongs_to(resource, watch)] == [version]


def test_kinds_of_one_version_are_served_for_all_writers() -> None:
    """The API server converts: a watch of v1 alone also gets resources written as v2."""
    assert OTHER.versions == ()
    assert belongs_to(body(entry("v2", "t1", SPEC)), OTHER)
    assert belongs_to(body(entry("v2", "t1", SPEC)), replace(OLD, versions=()))


@pytest.mark.parametrize("watch", [OLD, replace(OLD, versions=())])
def test_a_resource_of_a_test_is_that_of_the_testing_kit(watch: Watch) -> None:
    """Another operator in the cluster neither runs it nor cleans it up."""
    resource = body(entry("v1", "t1", SPEC))
    resource["metadata"]["annotations"] = {TEST_ANNOTATION: "true"}
    kit = replace(watch, for_tests=True)
    assert (belongs_to(resource, watch), cleans_up(resource, watch)) == (False, False)
    assert (belongs_to(resource, kit), cleans_up(resource, kit)) == (True, True)


def test_a_finalizer_of_one_name_is_run_by_the_watch_of_the_resource() -> None:
    """Another name is run by its own watch: the resource had its spec in that version before."""
    content = RunContent()
    names = {"v1": "a.com/one", "v2": "a.com/one", "v3": "a.com/other", "v4": None}
    watches = with_watched_versions(
        [
            Watch(
                GVK("a.com", version, "Web"),
                content,
                finalizer=None if name is None else Finalizer(name, content),
            )
            for version, name in names.items()
        ]
    )
    cleaning = {
        version: [
            watch.gvk.version
            for watch in watches
            if watch.finalizer and cleans_up(body(entry(version, "t1", SPEC)), watch)
        ]
        for version in names
    }
    assert cleaning == {
        "v1": ["v1", "v3"],
        "v2": ["v2", "v3"],
        "v3": ["v1", "v2", "v3"],
        "v4": ["v1", "v2", "v3"],
    }
