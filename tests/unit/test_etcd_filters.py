"""Filters of the example etcd: members and Pods in one list, and the backup of a cluster."""

from __future__ import annotations

import importlib.util
from types import ModuleType
from typing import Any

import pytest

from tests.support.operator import REPOSITORY

PATH = REPOSITORY / "examples/etcd/roles/etcd/filter_plugins/etcd.py"
IMAGE = "example.com/etcd:v3.6.8"


@pytest.fixture(scope="module")
def filters() -> ModuleType:
    spec = importlib.util.spec_from_file_location("etcd_filters", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pod(name: str, *, ready: str = "True", image: str = IMAGE, **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"containers": [{"image": IMAGE}]},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": ready}],
            "containerStatuses": [{"name": "etcd", "image": image, "restartCount": 0}],
        }
        | status,
    }


def member(name: str, **fields: Any) -> dict[str, Any]:
    return {"ID": 255, "name": name, "peerURLs": [f"http://{name}.db.team.svc:2380"]} | fields


def test_pods_are_in_the_order_of_their_names(filters: ModuleType) -> None:
    """The number is that of the name, the version that of the image."""
    found = filters.etcd_pods([pod("db-0001"), pod("db-0000")])
    assert [each["name"] for each in found] == ["db-0000", "db-0001"]
    assert (found[1]["number"], found[1]["version"]) == (1, "3.6.8")


@pytest.mark.parametrize(
    ("changed", "alive", "ready"),
    [
        ({}, True, True),
        ({"ready": "False"}, True, False),
        # The node has not started the image of the spec yet.
        ({"image": "example.com/etcd:v3.5.35"}, True, False),
        # Docker's short names are completed by the node.
        ({"image": f"docker.io/{IMAGE}"}, True, True),
        ({"phase": "Failed"}, False, False),
    ],
)
def test_when_a_pod_is_alive_and_ready(
    filters: ModuleType, changed: dict[str, Any], alive: bool, ready: bool
) -> None:
    """A Pod is ready with the image of its spec only, and dead once it has ended."""
    (found,) = filters.etcd_pods([pod("db-0000", **changed)])
    assert (found["alive"], found["ready"]) == (alive, ready)


def test_a_container_that_keeps_crashing_is_given_up(filters: ModuleType) -> None:
    """After five restarts; before, it may recover by itself."""

    def crashed(restarts: int) -> dict[str, Any]:
        waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
        container = {"name": "etcd", "image": IMAGE, "restartCount": restarts, "state": waiting}
        return pod("db-0000", ready="False", containerStatuses=[container])

    found = [filters.etcd_pods([crashed(restarts)])[0] for restarts in (4, 5)]
    assert [each["alive"] for each in found] == [True, False]
    assert found[0]["problem"] == "back-off"


def test_members_have_the_fields_of_their_pods(filters: ModuleType) -> None:
    """The peer URL names the Pod: a member that has not started has no name, and maybe no Pod."""
    pods = filters.etcd_pods([pod("db-0002")])
    listed = [
        member("db-0010", isLearner=True) | {"name": ""},
        member("db-0002"),
    ]
    first, second = filters.etcd_members(listed, pods)
    assert (first["name"], first["id"], first["peer"]) == (
        "db-0002",
        "ff",
        "db-0002=http://db-0002.db.team.svc:2380",
    )
    assert (first["voter"], first["started"], first["exists"], first["ready"]) == (True,) * 4
    assert (second["name"], second["number"]) == ("db-0010", 10)
    assert not any(second[field] for field in ("voter", "started", "exists", "alive", "ready"))


def backup(endpoint: str, date: str | None) -> dict[str, Any]:
    status = {"lastSuccessDate": date, "path": endpoint} if date else {}
    return {"metadata": {"uid": "b"}, "spec": {"etcdEndpoints": [endpoint]}, "status": status}


def test_the_newest_backup_of_the_cluster_itself_is_used(filters: ModuleType) -> None:
    """Backups without success, of other clusters and of other namespaces are not used."""
    found = [
        backup("http://db-client:2379", "2026-01-01T00:00:00Z"),
        backup("http://db-client.team.svc:2379", "2026-01-02T00:00:00Z"),
        backup("http://db-client.other.svc:2379", "2026-01-03T00:00:00Z"),
        backup("http://another-client:2379", "2026-01-04T00:00:00Z"),
        backup("http://db-client:2379", None),
    ]
    assert filters.etcd_newest_backup(found, "db-client", "team") == found[1]
    assert filters.etcd_newest_backup(found[2:], "db-client", "team") == {}
