"""Discovery: kinds that come later, aggregated APIs that are dead, API servers that are old."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from aiohttp import web

from operator_runner.core.errors import ApiError, NotFound, Unavailable
from operator_runner.core.model import GVK, Json
from operator_runner.kube.api import Api
from operator_runner.kube.discovery import Discovery
from tests.contract.kube.crds import crd
from tests.contract.kube.scripted import ScriptedServer, status
from tests.contract.kube.waiting import until
from tests.support.kubectl import Kubectl


async def test_built_in_kinds_are_discovered(discovery: Discovery) -> None:
    """Scope, plural and subresources are those of the API server."""
    pod = await discovery.resource(GVK("", "v1", "Pod"))
    role = await discovery.resource(GVK("rbac.authorization.k8s.io", "v1", "ClusterRole"))
    scaled = await discovery.resource_named("apps", "v1", "deployments")

    assert pod.path("ns", "web", "status") == "/api/v1/namespaces/ns/pods/web/status"
    assert role.path("ns", "system:node").endswith("/v1/clusterroles/system:node")
    assert scaled.gvk == GVK("apps", "v1", "Deployment")
    assert {"status", "scale"} <= scaled.subresources
    assert "watch" in scaled.verbs


@pytest.mark.parametrize("version", ["v1", "v2"])
async def test_the_error_of_an_unknown_kind_names_its_crd(
    discovery: Discovery, version: str
) -> None:
    """The error names the kind, and that its CRD is to be installed."""
    with pytest.raises(NotFound, match=f"no kind Nothing in apps/{version}: its CRD is missing"):
        await discovery.resource(GVK("apps", version, "Nothing"))
    with pytest.raises(NotFound, match=f"no resource nothings in apps/{version}"):
        await discovery.resource_named("apps", version, "nothings")


async def test_a_kind_that_is_installed_later_is_discovered(
    discovery: Discovery, kubectl: Kubectl
) -> None:
    """A missing CRD is found once it is there, without a restart."""
    gvk = GVK("later.example.com", "v1", "Latecomer")
    with pytest.raises(NotFound):
        await discovery.resource(gvk)
    kubectl.apply(crd(gvk))

    async def known() -> bool:
        try:
            resource = await discovery.resource(gvk)
        except NotFound:
            return False
        return resource.plural == "latecomers" and resource.subresources == {"status"}

    await until(known)


@pytest.fixture
def dead_api(kubectl: Kubectl) -> Iterator[GVK]:
    """Register an aggregated API whose Service does not exist."""
    name = "v1.dead.example.com"
    spec = {
        "group": "dead.example.com",
        "version": "v1",
        "groupPriorityMinimum": 1000,
        "versionPriority": 10,
        "insecureSkipTLSVerify": True,
        "service": {"namespace": kubectl.namespace, "name": "nowhere"},
    }
    kubectl.apply(
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": name},
            "spec": spec,
        }
    )
    yield GVK("dead.example.com", "v1", "Ghost")
    kubectl("delete", "apiservice", name)


async def test_a_dead_aggregated_api_affects_its_own_group_only(
    discovery: Discovery, dead_api: GVK
) -> None:
    """Its kinds are unavailable, not missing; all others are found."""

    async def unavailable() -> bool:
        try:
            await discovery.resource(dead_api)
        except Unavailable:
            return True
        except NotFound:  # the API server has not taken it in yet
            return False
        raise AssertionError

    await until(unavailable)
    assert (await discovery.resource(GVK("batch", "v1", "Job"))).namespaced


async def test_an_old_api_server_gets_a_request_for_each_group_version(
    scripted: ScriptedServer, scripted_api: Api
) -> None:
    """Without aggregated discovery, subresources are read from entries of their own."""
    widgets: Json = {"name": "widgets", "kind": "Widget", "namespaced": True, "verbs": ["get"]}
    sub: Json = {"name": "widgets/status", "kind": "Widget", "namespaced": True, "verbs": ["get"]}
    answers = {
        "/apis": {"kind": "APIGroupList", "groups": []},
        "/apis/example.com/v1": {"kind": "APIResourceList", "resources": [sub, widgets]},
    }

    async def answer(request: web.Request) -> web.Response:
        found = answers.get(request.path)
        return web.json_response(found) if found else status(404)

    scripted.answer = answer
    discovery = Discovery(scripted_api)

    widget = await discovery.resource(GVK("example.com", "v1", "Widget"))

    assert (widget.plural, widget.subresources) == ("widgets", frozenset({"status"}))
    with pytest.raises(NotFound):
        await discovery.resource(GVK("example.com", "v2", "Widget"))


async def test_discovered_kinds_are_kept_during_an_outage(
    scripted: ScriptedServer, scripted_api: Api
) -> None:
    """Only kinds that were never discovered fail, and they are requested again."""
    down = False
    item = {"resource": "widgets", "responseKind": {"kind": "Widget"}, "scope": "Cluster"}
    version = {"version": "v1", "freshness": "Current", "resources": [item]}
    found = {"items": [{"metadata": {"name": "example.com"}, "versions": [version]}]}

    async def answer(_: web.Request) -> web.Response:
        return status(503) if down else web.json_response(found)

    scripted.answer = answer
    discovery = Discovery(scripted_api)
    widget = GVK("example.com", "v1", "Widget")
    assert not (await discovery.resource(widget)).namespaced
    down = True

    assert not (await discovery.resource(widget)).namespaced
    with pytest.raises(ApiError):
        await discovery.resource(GVK("example.com", "v2", "Widget"))
    down = False
    version["version"] = "v2"
    assert await discovery.resource(GVK("example.com", "v2", "Widget"))
