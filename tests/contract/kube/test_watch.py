"""Following metadata: a real API server for the protocol, a scripted one for its failures."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing

import pytest
from aiohttp import web

from operator_runner.controller.predicates.dependent_changes import Version
from operator_runner.core.errors import Forbidden, NotFound
from operator_runner.core.json_bounds import MAX_DEPTH, height
from operator_runner.core.model import GVK, Json
from operator_runner.kube.api import MERGE_PATCH, Api
from operator_runner.kube.discovery import ApiResource, Discovery
from operator_runner.kube.object_readiness import Health, Readiness
from operator_runner.kube.watch import MetadataEvent, watch_metadata
from tests.contract.kube.crds import crd
from tests.contract.kube.scripted import ScriptedServer, status, stream
from tests.support.kubectl import Kubectl

WIDGETS = ApiResource(GVK("example.com", "v1", "Widget"), "widgets", namespaced=True)


async def _take(events: AsyncIterator[MetadataEvent], count: int) -> list[tuple[str, str]]:
    """Return type and name of the next events."""
    taken: list[tuple[str, str]] = []
    async with asyncio.timeout(180):
        while len(taken) < count:
            event = await anext(events)
            taken.append((event.type.value, event.body.get("metadata", {}).get("name", "")))
    return taken


async def test_changes_are_seen_as_they_happen(
    api: Api, discovery: Discovery, kubectl: Kubectl
) -> None:
    """Existing objects are first, then each change, reduced to metadata with kind and version."""
    resource = await discovery.resource(GVK("", "v1", "ConfigMap"))
    kubectl("create", "configmap", "a", "--from-literal=key=value")
    kubectl("label", "configmap", "a", "watched=yes")
    kubectl("create", "configmap", "unlabelled")
    watch = watch_metadata(api, resource, kubectl.namespace, "watched=yes")
    async with aclosing(watch) as events:  # type: ignore[type-var]
        first = await anext(events)
        assert first.body.keys() == {"apiVersion", "kind", "metadata"}
        assert (first.body["kind"], first.body["metadata"]["name"]) == ("ConfigMap", "a")
        assert first.body["metadata"]["managedFields"]
        assert await _take(events, 1) == [("SYNCED", "")]
        large = {"metadata": {"annotations": {"large": "x" * 200_000}}}
        path = resource.path(kubectl.namespace, "a")
        await api.request("PATCH", path, body=large, content_type=MERGE_PATCH)
        kubectl("label", "configmap", "unlabelled", "watched=yes")
        kubectl("delete", "configmap", "a")
        expected = [("MODIFIED", "a"), ("ADDED", "unlabelled"), ("DELETED", "a")]
        assert await _take(events, 3) == expected


async def test_a_watch_that_nobody_needs_any_more_is_not_interrupted(
    api: Api, discovery: Discovery, kubectl: Kubectl
) -> None:
    """Its end is reported as final, so that the operator stays ready."""
    begun, ends = asyncio.Event(), []
    api.connection.on_watch(lambda _: begun.set(), lambda *end: ends.append(end))
    resource = await discovery.resource(GVK("", "v1", "ConfigMap"))
    following = asyncio.create_task(
        _take(watch_metadata(api, resource, kubectl.namespace), 1_000_000)
    )
    async with asyncio.timeout(180):
        await begun.wait()
    following.cancel()
    await asyncio.wait([following])
    path = f"{resource.path(kubectl.namespace)} (metadata)"
    assert ends[-1] == (path, False)


async def test_health_is_kept_of_a_whole_object(
    api: Api, discovery: Discovery, kubectl: Kubectl
) -> None:
    """Listed and changed objects are reduced to their metadata and readiness."""
    resource = await discovery.resource(GVK("", "v1", "PersistentVolumeClaim"))
    assert "status" in resource.subresources
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "a"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    kubectl.apply(claim)
    watch = watch_metadata(api, resource, kubectl.namespace, health=True)
    async with asyncio.timeout(180), aclosing(watch) as events:  # type: ignore[type-var]
        first = await anext(events)
        assert first.body.keys() == {"apiVersion", "kind", "metadata"}
        assert first.health == Health(Readiness.NOT_READY, behind=False)
        patch = '--patch={"status": {"phase": "Lost"}}'
        kubectl("patch", "pvc", "a", "--subresource=status", "--type=merge", patch)
        while first.health != Health(Readiness.FAILED, behind=False):
            first = await anext(events)
        assert first.body.keys() in ({"apiVersion", "kind", "metadata"}, set())


async def test_secrets_have_no_status_to_be_read_for(discovery: Discovery) -> None:
    """They are watched by metadata alone, and so are all kinds without a status."""
    for kind in ("Secret", "ConfigMap", "ServiceAccount"):
        assert "status" not in (await discovery.resource(GVK("", "v1", kind))).subresources


async def test_an_object_nested_too_deep_does_not_affect_others(
    api: Api, discovery: Discovery, kubectl: Kubectl
) -> None:
    """Its managedFields are as deep as its spec; listed or watched, all others are seen."""
    gvk = GVK(f"{kubectl.namespace}.example.com", "v1", "Deep")
    kubectl("create", "--filename=-", input_=json.dumps(crd(gvk)))
    kubectl.wait_for_kinds(f"deeps.{gvk.group}")

    def create(name: str, levels: int) -> None:
        head = {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": {"name": name}}
        spec = '{"a":' * levels + "1" + "}" * levels
        text = f'{json.dumps(head)[:-1]}, "spec": {spec}}}'
        kubectl("create", "--validate=false", "--filename=-", input_=text)

    create("a-listed", 1_000)
    create("b-listed", 1)
    resource = await discovery.resource(gvk)
    async with aclosing(watch_metadata(api, resource, kubectl.namespace)) as events:  # type: ignore[type-var]
        listed = await anext(events)
        assert listed.body["metadata"]["name"] == "a-listed"
        assert height(listed.body) <= MAX_DEPTH + 1
        Version.of(listed.body["metadata"])
        assert await _take(events, 2) == [("ADDED", "b-listed"), ("SYNCED", "")]
        create("watched", 5_000)
        kubectl("label", f"deeps.{gvk.group}", "b-listed", "a=b")
        assert await _take(events, 2) == [("ADDED", "watched"), ("MODIFIED", "b-listed")]
    kubectl("delete", f"crd/deeps.{gvk.group}")


async def test_long_lists_come_in_chunks(api: Api, discovery: Discovery, namespace: str) -> None:
    """More objects than fit one chunk are all there, once each."""
    resource = await discovery.resource(GVK("", "v1", "ConfigMap"))
    names = {f"many-{number}" for number in range(210)}
    path = resource.path(namespace)
    kind = {"apiVersion": "v1", "kind": "ConfigMap"}
    turns = asyncio.Semaphore(8)

    async def create(name: str) -> None:
        async with turns:
            await api.request("POST", path, body={**kind, "metadata": {"name": name}})

    await asyncio.gather(*map(create, names))
    seen = []
    async with aclosing(watch_metadata(api, resource, namespace)) as events:  # type: ignore[type-var]
        async for event in events:
            if event.type == "SYNCED":
                break
            seen.append(event.body["metadata"]["name"])

    assert len(seen) == len(set(seen))
    assert names <= set(seen)


class Script:
    """Answers lists and watches one after another; the last watch stays open."""

    def __init__(self, lists: list[Json | int], watches: list[list[bytes] | int]) -> None:
        """Take the answers; a number is the status of a refusal."""
        self._lists = lists
        self._watches = watches
        self.watched_from: list[str] = []

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        """Give the next answer."""
        if request.query.get("watch") != "true":
            listed = self._lists.pop(0)
            return status(listed) if isinstance(listed, int) else web.json_response(listed)
        self.watched_from.append(request.query["resourceVersion"])
        if not self._watches:
            return await stream(request, stay=True)
        lines = self._watches.pop(0)
        return status(lines) if isinstance(lines, int) else await stream(request, *lines)


def _widget(name: str, version: int, uid: str = "") -> Json:
    owner = [{"name": "owner", "uid": "o"}]
    metadata = {"name": name, "uid": uid or name, "resourceVersion": str(version)}
    return {"metadata": {**metadata, "ownerReferences": owner}}


def _listed(version: int, *items: Json) -> Json:
    return {"metadata": {"resourceVersion": str(version)}, "items": list(items)}


def _line(kind: str, body: Json) -> bytes:
    return json.dumps({"type": kind, "object": body}).encode() + b"\n"


_EXPIRED = _line("ERROR", {"kind": "Status", "code": 410, "message": "too old"})


@pytest.mark.parametrize("expired", [[_EXPIRED], 410])
async def test_missed_changes_are_reported_after_a_410(
    scripted: ScriptedServer, scripted_api: Api, expired: list[bytes] | int
) -> None:
    """The difference between before and a fresh list is yielded, deletions included."""
    before = _listed(10, _widget("kept", 1), _widget("changed", 2), _widget("removed", 3))
    again = _widget("again", 4, uid="first")
    before["items"].append(again)
    after = _listed(
        20,
        _widget("kept", 1),
        _widget("changed", 12),
        _widget("again", 13, uid="second"),
        _widget("new", 14),
    )
    scripted.answer = script = Script([before, after], [expired])

    async with aclosing(watch_metadata(scripted_api, WIDGETS, None)) as events:  # type: ignore[type-var]
        assert (await _take(events, 5))[-1] == ("SYNCED", "")
        missed = await _take(events, 6)

    assert missed == [
        ("DELETED", "removed"),
        ("DELETED", "again"),
        ("MODIFIED", "changed"),
        ("ADDED", "again"),
        ("ADDED", "new"),
        ("SYNCED", ""),
    ]
    assert script.watched_from[0] == "10"


async def test_a_late_deletion_still_names_the_owner(
    scripted: ScriptedServer, scripted_api: Api
) -> None:
    """The owner of an object must be known after its deletion."""
    scripted.answer = Script([_listed(1, _widget("a", 1)), _listed(2)], [410])

    async with aclosing(watch_metadata(scripted_api, WIDGETS, None)) as events:  # type: ignore[type-var]
        await _take(events, 2)
        deleted = await anext(events)

    assert deleted.type == "DELETED"
    assert deleted.body["metadata"]["ownerReferences"][0]["name"] == "owner"


_CHANGE = _line("MODIFIED", _widget("a", 7))


@pytest.mark.parametrize(
    ("lines", "version"),
    [
        pytest.param([_CHANGE], "7", id="ended by the server"),
        pytest.param([_CHANGE, _CHANGE.replace(b"7", b"8")[:40]], "7", id="broken in a line"),
        pytest.param([_CHANGE, b"no json\n"], "7", id="garbled"),
        pytest.param([_CHANGE, _line("BOOKMARK", _widget("", 9))], "9", id="moved by a bookmark"),
        pytest.param([_CHANGE[:30], _CHANGE[30:]], "7", id="in pieces"),
        pytest.param(
            [_CHANGE, _line("ERROR", {"code": 500, "message": "etcd"})], "7", id="an error inside"
        ),
    ],
)
async def test_a_watch_resumes_at_its_last_version(
    scripted: ScriptedServer, scripted_api: Api, lines: list[bytes], version: str
) -> None:
    """After any end of a watch, the next one starts after the last observed event."""
    scripted.answer = script = Script([_listed(5, _widget("a", 5))], [lines, [_later(10)]])

    async with aclosing(watch_metadata(scripted_api, WIDGETS, None)) as events:  # type: ignore[type-var]
        expected = [("ADDED", "a"), ("SYNCED", ""), ("MODIFIED", "a"), ("ADDED", "later")]
        assert await _take(events, 4) == expected

    assert script.watched_from[1] == version


def _later(version: int) -> bytes:
    return _line("ADDED", _widget("later", version))


@pytest.mark.parametrize("code", [401, 403, 404, 429, 500, 503])
async def test_refusals_after_the_first_list_are_retried(
    scripted: ScriptedServer, scripted_api: Api, code: int
) -> None:
    """A starting API server temporarily rejects requests that it allows later."""
    scripted.answer = Script([_listed(5)], [code, [_later(6)]])

    async with aclosing(watch_metadata(scripted_api, WIDGETS, "here")) as events:  # type: ignore[type-var]
        assert await _take(events, 2) == [("SYNCED", ""), ("ADDED", "later")]


@pytest.mark.parametrize("code", [500, 429])
async def test_a_first_list_that_fails_is_retried(
    scripted: ScriptedServer, scripted_api: Api, code: int
) -> None:
    """An API server that is not ready yet is waited for."""
    scripted.answer = Script([code, _listed(5)], [])

    async with aclosing(watch_metadata(scripted_api, WIDGETS, "here")) as events:  # type: ignore[type-var]
        assert await _take(events, 1) == [("SYNCED", "")]


@pytest.mark.parametrize(("code", "expected"), [(403, Forbidden), (404, NotFound)])
async def test_missing_rights_are_the_callers_to_report(
    scripted: ScriptedServer, scripted_api: Api, code: int, expected: Callable[..., Exception]
) -> None:
    """A first list that is refused is raised at once."""
    scripted.answer = Script([code], [])

    with pytest.raises(expected):  # type: ignore[call-overload]
        await anext(watch_metadata(scripted_api, WIDGETS, None))
