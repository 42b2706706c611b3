"""Which requests of a run are writes, of which object, and which of them are admitted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from operator_runner.core.model import GVK, Json, Ownership, RunContent, Watch
from operator_runner.kube.api import Api
from operator_runner.kube.discovery import ApiResource, Discovery
from operator_runner.proxy.bodies import DecodingError
from operator_runner.proxy.metadata_client import MetadataClient
from operator_runner.proxy.ownership import Owner
from operator_runner.proxy.ownership_enforcement import (
    Admission,
    WriteRequest,
    is_target_in_body,
    is_write,
    with_target,
)
from operator_runner.proxy.request_info import RequestInfo
from operator_runner.proxy.run_tokens import Grant
from operator_runner.proxy.status_errors import StatusError

TEAM = "/api/v1/namespaces/team"
BINDINGS = f"{TEAM}/bindings"
SHARDS = "/apis/aggregated.example.com/v1/namespaces/team/shards"
NODE = "/api/v1/nodes/node-1/proxy/exec/team/web/app"


class LiveMetadata(MetadataClient):
    """The metadata of objects by path."""

    def __init__(self, objects: Mapping[str, Json]) -> None:
        """Serve these objects and no others."""
        super().__init__(cast("Api", None))
        self._objects = objects

    async def at(self, path: str) -> Json:
        """Return the metadata of an object, empty if missing."""
        return self._objects.get(path, {})


class Kinds(Discovery):
    """Kinds that are named like their resources."""

    def __init__(self) -> None:
        """Send nothing."""
        super().__init__(cast("Api", None))

    async def resource_named(self, group: str, version: str, plural: str) -> ApiResource:
        """Return a namespaced resource."""
        return ApiResource(GVK(group, version, plural.removesuffix("s").title()), plural, True)

    async def resource(self, gvk: GVK) -> ApiResource:
        """Return a namespaced resource."""
        return ApiResource(gvk, f"{gvk.kind.lower()}s", True)


@pytest.fixture
def grant(owner: Owner) -> Grant:
    """Give the access of a run that may only write what belongs to its resource."""
    content = RunContent(role=Path("/roles/any"))
    return Grant(owner, Watch(owner.ref.gvk, content, ownership=Ownership.REFUSE), "run-1")


def write_of(grant: Grant, method: str, path: str, kind: str = "application/json") -> WriteRequest:
    """Return a write of the run."""
    info = RequestInfo.parse(path)
    assert info is not None
    return WriteRequest(grant, method, info.target, kind)


def admission(objects: Mapping[str, Json]) -> Admission:
    """Return the admission of writes where these objects exist."""

    async def announce(grant: Grant, info: RequestInfo) -> None:
        raise AssertionError(f"{info} is not pruned by {grant.run_id}")

    return Admission(LiveMetadata(objects), Kinds(), inject=True, announce=announce)


@pytest.mark.parametrize(
    ("method", "path", "upgraded", "expected"),
    [
        ("GET", f"{TEAM}/pods/web/exec", False, True),
        ("GET", f"{TEAM}/pods/web/attach", True, True),
        ("HEAD", f"{TEAM}/pods/web/portforward", False, True),
        ("GET", NODE, True, True),
        ("GET", f"{TEAM}/pods/web:80/proxy/ws", True, True),
        ("GET", f"{TEAM}/services/web/proxy", True, True),
        ("GET", f"/apis/subresources.kubevirt.io/v1{TEAM[7:]}/machines/a/console", True, True),
        ("POST", f"{TEAM}/services/web/proxy", False, True),
        ("POST", BINDINGS, False, True),
        ("GET", NODE, False, False),
        ("GET", f"{TEAM}/services/web/proxy/healthz", False, False),
        ("GET", f"{TEAM}/pods/web/log", True, False),
        ("GET", f"{TEAM}/pods", True, False),
        ("GET", f"{TEAM}/pods/web", False, False),
    ],
)
def test_streams_are_writes_whatever_their_method(
    method: str, path: str, upgraded: bool, expected: bool
) -> None:
    """By websocket, a GET of a node's `proxy` runs commands in any Pod of the node."""
    info = RequestInfo.parse(path)
    assert info is not None
    assert is_write(method, info, upgraded=upgraded) is expected


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/json", b'{"metadata": {"name": "web"}, "target": {"name": "node-1"}}'),
        ("application/json", b'{"metadata": {"name": "other"}, "metadata": {"name": "web"}}'),
        ("application/yaml", b"metadata: {name: web}"),
        (
            "application/vnd.kubernetes.protobuf",
            b"k8s\0\x0a\x0d\x0a\x02v1\x12\x07Binding\x12\x07\x0a\x05\x0a\x03web",
        ),
    ],
    ids=["json", "twice", "yaml", "protobuf"],
)
def test_a_binding_is_one_of_the_pod_in_its_body(grant: Grant, kind: str, body: bytes) -> None:
    """As a POST of `pods/web/binding`."""
    write = write_of(grant, "POST", BINDINGS, kind)
    assert is_target_in_body(write)
    expected = replace(write, info=RequestInfo("", "v1", "team", "pods", "web", "binding"))
    assert with_target(write, body) == expected


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/json", b"{"),
        ("application/json", b'{"metadata": {"name": "web"}, "metadata": {}}'),
        ("application/json", b'{"metadata": {"name": ["web"]}}'),
        ("application/json", b""),
        ("text/plain", b'{"metadata": {"name": "web"}}'),
    ],
)
def test_a_binding_without_a_pod_is_rejected(grant: Grant, kind: str, body: bytes) -> None:
    """The API server might read another name in it."""
    with pytest.raises(
        StatusError, match=r"invalid body for bindings: set metadata\.name"
    ) as excinfo:
        with_target(write_of(grant, "POST", BINDINGS, kind), body)
    assert excinfo.value.code == 400


def test_a_malformed_binding_in_protobuf_is_rejected(grant: Grant) -> None:
    """It cannot be judged."""
    with pytest.raises(DecodingError):
        with_target(write_of(grant, "POST", BINDINGS, "application/vnd.kubernetes.protobuf"), b"x")


async def test_only_own_pods_are_bound(grant: Grant) -> None:
    """The Pod that was judged is the one that is bound: the body gets its uid and version."""
    mine: Json = {"name": "mine", "uid": "uid-m", "resourceVersion": "7"}
    mine["ownerReferences"] = [grant.owner.reference]
    theirs = {"name": "theirs", "uid": "uid-t"}
    admitted = admission({f"{TEAM}/pods/mine": mine, f"{TEAM}/pods/theirs": theirs})
    body = b'{"metadata": {"name": "%b"}, "target": {"name": "node-1"}}'
    write = write_of(grant, "POST", BINDINGS)

    decision = await admitted.decide(with_target(write, body % b"mine"))

    assert decision.edit is not None
    sent = json.loads(decision.edit(body % b"mine"))["metadata"]
    assert sent == {"name": "mine", "uid": "uid-m", "resourceVersion": "7"}
    assert decision.seen == ("uid-m", "7")
    for name, code in ((b"theirs", 403), (b"missing", 404)):
        with pytest.raises(StatusError) as excinfo:
            await admitted.decide(with_target(write, body % name))
        assert excinfo.value.code == code


@pytest.mark.parametrize("port", ["", ":80", ":http"])
@pytest.mark.parametrize("scheme", ["", "https:"])
async def test_the_port_of_a_service_hides_no_owner(grant: Grant, scheme: str, port: str) -> None:
    """Requests are passed on to applications behind own Services, whatever the port."""
    if scheme and not port:
        port = ":"
    mine = {"name": "mine", "uid": "uid-m", "ownerReferences": [grant.owner.reference]}
    theirs = {"name": "theirs", "uid": "uid-t"}
    admitted = admission({f"{TEAM}/services/mine": mine, f"{TEAM}/services/theirs": theirs})
    path = f"{TEAM}/services/{scheme}%s{port}/proxy/drop"

    assert (await admitted.decide(write_of(grant, "POST", path % "mine"))).edit is None
    with pytest.raises(StatusError, match="Service team/theirs does not belong"):
        await admitted.decide(write_of(grant, "POST", path % "theirs"))


async def test_objects_without_a_uid_are_not_the_same(grant: Grant) -> None:
    """As in some aggregated APIs: that one belongs to the owner does not concern the others."""
    annotated = {"name": "mine", "annotations": grant.owner.annotations}
    part = {"apiVersion": "aggregated.example.com/v1", "kind": "Shard", "controller": True}
    objects: dict[str, dict[str, Any]] = {
        f"{SHARDS}/mine": annotated,
        f"{SHARDS}/theirs": {"name": "theirs"},
        f"{SHARDS}/null": {"name": "null", "uid": None},
        f"{SHARDS}/part": {"name": "part", "ownerReferences": [{**part, "name": "mine"}]},
        f"{SHARDS}/gone": {"name": "gone", "ownerReferences": [{**part, "name": "missing"}]},
    }
    admitted = admission(objects)

    # Without a uid there is no precondition either.
    assert (await admitted.decide(write_of(grant, "DELETE", f"{SHARDS}/mine"))).query == ""
    assert grant.owned_uids == set()
    for name in ("theirs", "null", "part", "gone"):
        with pytest.raises(StatusError, match=f"Shard team/{name} does not belong"):
            await admitted.decide(write_of(grant, "DELETE", f"{SHARDS}/{name}"))
