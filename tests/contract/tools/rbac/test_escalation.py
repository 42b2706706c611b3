"""Roles and bindings that a role of Ansible writes: `rbac` requires what the API server checks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from operator_runner.core.model import GVK, RunContent, Watch
from operator_runner.proxy.request_info import (
    Permission,
    RequestInfo,
    Subject,
    permissions_for_request,
    permissions_in_body,
)
from operator_runner.tools.rbac.access_rules import KindTable, Requirement
from operator_runner.tools.rbac.render import manifest
from operator_runner.tools.rbac.requirements import (
    EnabledFeatures,
    RequirementSources,
    requirements_of,
)
from tests.support.kubectl import Json, Kubectl
from tests.support.waiting import eventually

RBAC = "rbac.authorization.k8s.io"
WEB = Watch(GVK("shop.io", "v1", "Web"), RunContent(role=Path("/roles/web")))
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "spec": {"group": "shop.io", "names": {"kind": "Web", "plural": "webs"}, "scope": "Namespaced"},
}
READ = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
AGGREGATED = {"clusterRoleSelectors": [{"matchLabels": {"shop.io/part": "true"}}]}
ANYTHING = {"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]}


def role(name: str, *rules: Json, kind: str = "Role", **more: object) -> Json:
    return {"kind": kind, "metadata": {"name": name}, "rules": [*rules], **more}


def binding(role_kind: str, role_name: str, kind: str = "RoleBinding") -> Json:
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": "default"}
    reference = {"apiGroup": RBAC, "kind": role_kind, "name": role_name}
    return {
        "kind": kind,
        "metadata": {"name": f"{role_name}-of-shop"},
        "roleRef": reference,
        "subjects": [subject],
    }


def derived(kubectl: Kubectl, *objects: Json) -> list[Requirement]:
    """Return what `rbac` requires for creating these objects, apart from the kind's watch."""
    subject = Subject("Web.shop.io", kubectl.namespace, "shop")
    recorded: list[Permission] = []
    for body in objects:
        where = "" if body["kind"].startswith("Cluster") else f"/namespaces/{kubectl.namespace}"
        path = f"/apis/{RBAC}/v1{where}/{body['kind'].lower()}s"
        info = RequestInfo.parse(path)
        assert info is not None
        recorded += permissions_for_request("POST", path, subject, status=201)
        recorded += permissions_in_body(info, body, subject)
    features = EnabledFeatures(scopes=(kubectl.namespace,), inject_owner_ref=False)
    sources = RequirementSources((WEB,), tuple(recorded), KindTable([CRD]), features)
    every = requirements_of(sources, names=False)
    return [one for one in every if one.reason.startswith("the role web requests it")]


def grant(kubectl: Kubectl, requirements: list[Requirement]) -> None:
    """Grant these requirements, and no others, to the account `web`."""
    namespace = kubectl.namespace
    rules: dict[str, list[Json]] = {"Role": [], "ClusterRole": []}
    for body in yaml.safe_load_all(manifest(requirements, namespace)) if requirements else ():
        if body["kind"] in rules:
            rules[body["kind"]] += body["rules"]
    account = {"kind": "ServiceAccount", "name": "web", "namespace": namespace}
    for kind, name in (("Role", "granted"), ("ClusterRole", f"granted-{namespace}")):
        reference = {"apiGroup": RBAC, "kind": kind, "name": name}
        bound = {"kind": f"{kind}Binding", "metadata": {"name": name}, "roleRef": reference}
        for body in (role(name, *rules[kind], kind=kind), bound | {"subjects": [account]}):
            kubectl.apply({"apiVersion": f"{RBAC}/v1", **body})


def create(kubectl: Kubectl, objects: tuple[Json, ...]) -> list[str]:
    """Return the API server's refusals when the account `web` creates the objects."""
    user = f"--as=system:serviceaccount:{kubectl.namespace}:web"
    refusals = []
    for body in objects:
        text = json.dumps({"apiVersion": f"{RBAC}/v1", **body})
        done = kubectl.run("create", "--dry-run=server", user, "--filename=-", input_=text)
        refusals += [done.stderr] if done.returncode else []
    return refusals


@pytest.mark.parametrize(
    ("objects", "required"),
    [
        (
            (role("shop-reader", READ), binding("Role", "shop-reader")),
            ["get pods in NS", "create rolebindings in NS", "create roles in NS"],
        ),
        (
            (role("all", ANYTHING), binding("Role", "all")),
            [
                "create rolebindings in NS",
                "bind roles named all in NS",
                "create roles in NS",
                "escalate roles in NS",
            ],
        ),
        (
            (binding("ClusterRole", "view"),),
            ["bind clusterroles named view in NS", "create rolebindings in NS"],
        ),
        (
            (
                role("shop", READ, kind="ClusterRole"),
                binding("ClusterRole", "shop", kind="ClusterRoleBinding"),
            ),
            ["get pods", "create clusterrolebindings", "create clusterroles"],
        ),
        (
            (role("sum-of-shop", kind="ClusterRole", aggregationRule=AGGREGATED),),
            ["create clusterroles", "escalate clusterroles"],
        ),
    ],
)
def test_the_requirements_are_those_of_the_api_server(
    kubectl: Kubectl, objects: tuple[Json, ...], required: list[str]
) -> None:
    """With them the objects can be created; without one that is not `create`, they cannot."""
    requirements = derived(kubectl, *objects)
    names = dict.fromkeys(
        str(one.rule).replace(f".{RBAC}", "").replace(f"namespace {kubectl.namespace}", "NS")
        for one in requirements
    )
    assert [*names] == required
    kubectl("create", "serviceaccount", "web")
    for body in objects:
        kubectl.apply({"apiVersion": f"{RBAC}/v1", **body})
    # Creations are tried under other names, because bindings need the role itself.
    tried = tuple(
        body | {"metadata": {"name": f"{body['metadata']['name']}-{kubectl.namespace}"}}
        for body in objects
    )
    try:
        grant(kubectl, requirements)
        eventually(lambda: create(kubectl, tried), lambda refusals: refusals == [])
        for left_out in (one for one in requirements if one.rule.verb != "create"):
            grant(kubectl, [one for one in requirements if one.rule != left_out.rule])
            eventually(
                lambda: create(kubectl, tried), lambda refusals: "forbidden" in str(refusals)
            )
    finally:
        for body in objects:
            kubectl("delete", body["kind"], body["metadata"]["name"])
        for kind in ("clusterrole", "clusterrolebinding"):
            kubectl("delete", kind, f"granted-{kubectl.namespace}")
