"""Requests, patches and lists of a dry run."""

from __future__ import annotations

import json

import pytest

from operator_runner.core.model import Json
from operator_runner.proxy.dry_run.overlay import DryRun, ObjectKey, Selectors
from operator_runner.proxy.dry_run.patches import patched
from operator_runner.proxy.dry_run.sending import delete_options, refusal, with_dry_run
from operator_runner.proxy.request_info import RequestInfo
from operator_runner.proxy.status_errors import StatusError

_PODS = "/api/v1/namespaces/a/pods"


def _pod(name: str, **labels: str) -> Json:
    metadata = {"name": name, "namespace": "a", "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}


@pytest.mark.parametrize(
    ("method", "path", "upgraded", "what"),
    [
        ("GET", f"{_PODS}/web", False, ""),
        ("GET", f"{_PODS}/web/log", False, ""),
        ("PATCH", f"{_PODS}/web/status", False, ""),
        ("GET", "/openapi/v3", False, ""),
        ("GET", f"{_PODS}/web/exec", True, "exec"),
        ("POST", f"{_PODS}/web/attach", True, "attach"),
        ("GET", f"{_PODS}/web/proxy/a", False, "proxy"),
        ("POST", f"{_PODS}/web/eviction", False, "eviction"),
        ("POST", "/api/v1/namespaces/a/serviceaccounts/b/token", False, "token"),
        ("POST", f"{_PODS}/web/binding", False, "binding"),
        ("POST", "/api/v1/namespaces/a/bindings", False, "a write to bindings"),
        (
            "POST",
            "/apis/project.openshift.io/v1/projectrequests",
            False,
            "a write to projectrequests",
        ),
        ("POST", "/metrics", False, "a write outside of the resource API"),
    ],
)
def test_requests_without_a_preview_are_refused(
    method: str, path: str, upgraded: bool, what: str
) -> None:
    """Reads of objects and writes that the API server can try are not."""
    assert refusal(method, RequestInfo.parse(path), upgraded=upgraded) == what


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", "dryRun=All"),
        ("dryRun=&fieldManager=a%20b", "fieldManager=a+b&dryRun=All"),
        ("dryRun=All&dryRun=x&force=true", "force=true&dryRun=All"),
    ],
)
def test_each_write_has_one_dry_run_in_its_query(query: str, expected: str) -> None:
    """For any request of the client."""
    assert with_dry_run(query) == expected


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("", b""),
        ("application/json", b'{"dryRun": [], "propagationPolicy": "Orphan"}'),
        ("application/yaml", b"dryRun: []"),
        ("application/json", b"[]"),
        ("application/json", b"{"),
        ("application/vnd.kubernetes.protobuf", b"k8s\0"),
    ],
)
def test_each_deletion_has_a_dry_run_in_its_body(kind: str, body: bytes) -> None:
    """The API server ignores the query where there is a body."""
    options = json.loads(delete_options(kind, body))
    assert options["dryRun"] == ["All"]
    assert (b"Orphan" in body) == (options.get("propagationPolicy") == "Orphan")


def test_lists_show_objects_as_the_run_has_left_them() -> None:
    """Created ones are added, deleted ones are missing, and selectors see the new labels."""
    pods = RequestInfo.parse(_PODS)
    assert pods is not None
    dry_run = DryRun()
    dry_run.record(ObjectKey("", "pods", "a", "new"), None, _pod("new", app="x"))
    dry_run.record(ObjectKey("", "pods", "a", "old"), _pod("old"), None)
    dry_run.record(ObjectKey("", "pods", "a", "moved"), _pod("moved", app="x"), _pod("moved"))
    live = [_pod("kept", app="x"), _pod("old"), _pod("moved", app="x")]
    found = dry_run.merge(pods, live, Selectors("app=x"))
    assert [each["metadata"]["name"] for each in found] == ["kept", "new"]
    named = dry_run.merge(pods, [], Selectors(field="metadata.name=moved"))
    assert [each["metadata"]["name"] for each in named] == ["moved"]
    assert [str(each) for each in dry_run.differences()] == [
        "Pod a/new created",
        "Pod a/old deleted",
        "Pod a/moved changed",
    ]


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("app=x,tier!=front", True),
        ("app in (x, y),!other", True),
        ("app notin (x,y)", False),
        ("tier", True),
        ("app==y", False),
    ],
)
def test_label_selectors_match_as_in_kubectl(selector: str, matches: bool) -> None:
    """As kubectl takes them."""
    assert Selectors(selector).match(_pod("a", app="x", tier="back")) is matches


def test_a_strategic_merge_patch_merges_lists_by_their_keys() -> None:
    """As the API server does for stored objects."""
    body = {"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b"}], "args": ["x"]}}
    patch = {
        "spec": {
            "$setElementOrder/containers": [{"name": "a"}],
            "containers": [{"name": "a", "image": "2"}, {"name": "b", "$patch": "delete"}],
            "args": ["y"],
        }
    }
    found = patched(body, "application/strategic-merge-patch+json", json.dumps(patch).encode())
    assert found == {"spec": {"containers": [{"name": "a", "image": "2"}], "args": ["y"]}}


def test_merge_patches_and_json_patches_are_applied() -> None:
    """A merge patch removes fields that are null; an operation that does not apply is an error."""
    body = {"data": {"a": "1", "b": "2"}}
    merged = patched(body, "application/merge-patch+json", b'{"data": {"a": null, "c": "3"}}')
    assert merged == {"data": {"b": "2", "c": "3"}}
    operations = b'[{"op": "replace", "path": "/data/a", "value": "9"}]'
    assert patched(body, "application/json-patch+json", operations)["data"]["a"] == "9"
    with pytest.raises(ValueError, match="does not apply"):
        patched(body, "application/json-patch+json", operations.replace(b"/data/a", b"/nothing/a"))
    with pytest.raises(ValueError, match="expected an object"):
        patched(body, "application/merge-patch+json", b"[]")


@pytest.mark.parametrize(
    ("kind", "patch"),
    [
        ("application/json-patch+json", b'[{"op": "add", "path": "/data/a/b", "value": 1}]'),
        ("application/json-patch+json", b'{"op": "add"}'),
        ("application/json-patch+json", b"5"),
        ("application/strategic-merge-patch+json", b'{"$deleteFromPrimitiveList/data": 5}'),
        ("application/strategic-merge-patch+json", b'{"env": [{"name": []}]}'),
        ("application/merge-patch+json", b'{"metadata": "x"}'),
        ("application/merge-patch+json", b"{"),
        ("application/apply-patch+yaml", b"a: *b"),
    ],
)
def test_a_patch_of_wrong_types_is_an_error_of_the_client(kind: str, patch: bytes) -> None:
    """It is not one of the proxy."""
    body = {"metadata": {}, "data": {"a": "1"}, "env": [{"name": "a"}]}
    with pytest.raises(ValueError, match=r"."):
        patched(body, kind, patch)


def test_a_dry_run_has_bounds() -> None:
    """Of objects, of their size together, and of requests that it names."""
    dry_run = DryRun()
    for number in range(2000):
        dry_run.record(ObjectKey("", "pods", "a", f"{number}"), None, _pod("a"))
        dry_run.refuse(f"GET /{number}")
    dry_run.record(ObjectKey("", "pods", "a", "1"), None, _pod("b"))
    with pytest.raises(StatusError, match="more than 2000 objects"):
        dry_run.record(ObjectKey("", "pods", "a", "more"), None, _pod("a"))
    dry_run.reserve(100 * 1024**2)
    with pytest.raises(StatusError, match="larger than"):
        dry_run.reserve(100 * 1024**2)
    assert len(dry_run.refused) == 200
