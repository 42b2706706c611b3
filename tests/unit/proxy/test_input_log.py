"""What a run reads and changes, from its requests and responses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from operator_runner.core.run_inputs import ABSENT, Read, list_version
from operator_runner.proxy.input_log import InputLog
from operator_runner.proxy.request_info import RequestInfo

MAPS = "/api/v1/namespaces/a/configmaps"


def configmap(version: str = "1") -> dict[str, Any]:
    return {"metadata": {"name": "web", "uid": "u", "resourceVersion": version}}


def exchange(
    log: InputLog,
    method: str,
    path: str,
    body: Any = None,
    *,
    status: int = 200,
    query: dict[str, str] | None = None,
) -> None:
    info = RequestInfo.parse(path)
    log.sent(method, path, query or {}, info)
    if log.answered(method, info, status):
        assert info is not None
        log.decoded(method, info, query or {}, json.dumps(body).encode())


def test_objects_lists_and_missing_objects_are_reads() -> None:
    """Each has the version that a later read is compared with."""
    log = InputLog()
    exchange(log, "GET", "/apis/apps/v1")
    exchange(log, "GET", f"{MAPS}/web", configmap())
    exchange(log, "GET", f"{MAPS}/gone", status=404)
    query = {"labelSelector": "a=b", "fieldSelector": ""}
    exchange(log, "GET", MAPS, {"metadata": {}, "items": [configmap("3")]}, query=query)
    assert log.impurity == ""
    assert dict(log.reads) == {
        Read(MAPS, "web"): "u/1",
        Read(MAPS, "gone"): ABSENT,
        Read(MAPS, "", "labelSelector=a%3Db"): list_version([configmap("3")["metadata"]]),
    }


@pytest.mark.parametrize("method", ["PATCH", "PUT"])
def test_a_write_that_changes_nothing_is_not_a_change(method: str) -> None:
    """The response has the resourceVersion that the run has read before."""
    log = InputLog()
    exchange(log, "GET", f"{MAPS}/web", configmap())
    exchange(log, method, f"{MAPS}/web", configmap())
    exchange(log, "DELETE", f"{MAPS}/gone", status=404)
    assert log.impurity == ""


def test_a_write_with_another_version_is_a_change() -> None:
    """So is one of an object that the run has not read."""
    log = InputLog()
    exchange(log, "GET", f"{MAPS}/web", configmap())
    exchange(log, "PATCH", f"{MAPS}/web", configmap("2"))
    assert "changed" in log.impurity
    log = InputLog()
    exchange(log, "PATCH", f"{MAPS}/web", configmap())
    assert "changed" in log.impurity


def test_an_object_that_changes_during_the_run_is_impure() -> None:
    """The role may have decided by the older version."""
    log = InputLog()
    exchange(log, "GET", f"{MAPS}/web", configmap())
    exchange(log, "GET", f"{MAPS}/web", configmap("2"))
    assert "during the run" in log.impurity


def test_a_request_without_response_is_impure() -> None:
    """It may have been carried out."""
    log = InputLog()
    log.sent("GET", f"{MAPS}/web", {}, RequestInfo.parse(f"{MAPS}/web"))
    assert log.impurity


@pytest.mark.parametrize(
    ("method", "path", "query", "status"),
    [
        ("POST", MAPS, {}, 201),
        ("DELETE", f"{MAPS}/web", {}, 200),
        ("DELETE", MAPS, {}, 200),
        ("GET", MAPS, {"watch": "true"}, 200),
        ("GET", MAPS, {"limit": "10"}, 200),
        ("GET", MAPS, {}, 403),
        ("GET", "/api/v1/namespaces/a/pods/web/log", {}, 200),
        ("POST", "/api/v1/namespaces/a/pods/web/exec", {}, 101),
        ("GET", "/apis/metrics.k8s.io", {}, 503),
        ("GET", "/metrics", {}, 200),
        ("PATCH", f"{MAPS}/web", {"dryRun": "All"}, 200),
        ("PATCH", "/apis/apps/v1/namespaces/a/deployments/web/scale", {}, 200),
    ],
)
def test_everything_else_is_impure(
    method: str, path: str, query: dict[str, str], status: int
) -> None:
    """Creations, deletions, watches, logs, pages, errors and unknown paths are not compared."""
    log = InputLog()
    exchange(log, method, path, {"metadata": {}, "items": []}, status=status, query=query)
    assert log.impurity


@pytest.mark.parametrize("body", [None, [], {"metadata": {}}, {"metadata": {"uid": "u"}}])
def test_an_object_without_a_version_is_impure(body: Any) -> None:
    """Such as a Table, or an error of an aggregated API."""
    log = InputLog()
    exchange(log, "GET", f"{MAPS}/web", body)
    assert log.impurity
