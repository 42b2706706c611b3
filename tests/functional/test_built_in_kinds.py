"""Kinds of Kubernetes itself, and kinds without a spec, as primary resources."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest

from operator_runner.devcluster import Cluster
from tests.functional.test_get_and_tree import complete_lines, watching
from tests.functional.test_operator import echo, text_of, wait_for_text
from tests.functional.test_ui import served
from tests.support.kubectl import Json, Kubectl
from tests.support.operator import Operator
from tests.support.runner_cli import RunnerCli
from tests.support.waiting import eventually

_OURS = {"Running", "Successful", "Failure"}
_TASK = {
    "name": "Write what the resource has",
    "kubernetes.core.k8s": {
        "definition": {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": "seen-{{ ansible_operator_meta.name }}",
                "namespace": "{{ ansible_operator_meta.namespace or target }}",
            },
            "data": {"text": "{{ text }}"},
        }
    },
}
_FINALIZER = {"name": "test.example.com/farewell", "role": "cleanup"}


def _watch(project: Path, *watches: Json) -> None:
    """Write watches of a role that copies its variable `text` into a ConfigMap."""
    role = project / "roles" / "copy" / "tasks"
    role.mkdir(parents=True)
    (role / "main.yml").write_text(json.dumps([_TASK]))
    entries = [{"version": "v1", "role": "copy", **watch} for watch in watches]
    (project / "watches.yaml").write_text(json.dumps(entries))


def _causes(operator: Operator) -> list[str]:
    return [line["cause"] for line in operator.lines("Reconciling")]


def _conditions(kubectl: Kubectl, kind: str, name: str) -> set[str]:
    body = kubectl.get(kind, name)
    assert body is not None
    return {one["type"] for one in (body.get("status") or {}).get("conditions") or ()}


def _events(kubectl: Kubectl, name: str) -> list[str]:
    found = kubectl.list("events.events.k8s.io")
    return [each["reason"] for each in found if each["regarding"]["name"] == name]


def test_config_maps_are_reconciled_by_their_data(
    control_plane_cluster: Cluster, kubectl: Kubectl, operator: Operator, project: Path
) -> None:
    """Created, edited and deleted with a finalizer; others are left alone, no status is written."""
    _watch(
        project,
        {
            "kind": "ConfigMap",
            "selector": {"matchLabels": {"copied": "yes"}},
            "vars": {"text": "{{ __configmap.data.word }}"},
            "finalizer": _FINALIZER,
        },
    )
    kubectl("create", "configmap", "other", "--from-literal=word=no")
    operator.start()
    kubectl.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "a", "labels": {"copied": "yes"}},
            "data": {"word": "one"},
        }
    )
    wait_for_text(kubectl, operator, "one", "seen-a")
    kubectl.merge("configmap", "a", {"data": {"word": "two"}})
    wait_for_text(kubectl, operator, "two", "seen-a")
    assert _causes(operator) == ["spec: created", "spec: data.word"]
    eventually(lambda: "Successful" in _events(kubectl, "a"), details=operator.log)

    kubectl("delete", "configmap", "a")
    elsewhere = Kubectl(control_plane_cluster.bin / "kubectl", "default")
    assert text_of(elsewhere, f"{kubectl.namespace}-a") == "goodbye"
    assert kubectl.get("configmap", "other") is not None
    assert text_of(kubectl, "seen-other") is None
    eventually(lambda: text_of(kubectl, "seen-a"), lambda now: now is None, details=operator.log)
    assert not operator.lines("Reconciliation failed")


def test_endpoints_and_deployments_are_reconciled_without_status(
    kubectl: Kubectl, operator: Operator, project: Path
) -> None:
    """Endpoints wake by their addresses, a Deployment by its spec, not by its status."""
    addresses = "{{ __endpoints.subsets[0].addresses | map(attribute='ip') | join(' ') }}"
    _watch(
        project,
        {"kind": "Endpoints", "vars": {"text": addresses}},
        {"group": "apps", "kind": "Deployment", "vars": {"text": "{{ replicas | string }} wanted"}},
    )
    operator.start()

    def put_endpoints(*ips: str) -> None:
        subset = {"addresses": [{"ip": ip} for ip in ips], "ports": [{"port": 80}]}
        body = {"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "e"}}
        kubectl.apply(body | {"subsets": [subset]})

    put_endpoints("192.0.2.1")
    wait_for_text(kubectl, operator, "192.0.2.1", "seen-e")
    put_endpoints("192.0.2.1", "192.0.2.2")
    wait_for_text(kubectl, operator, "192.0.2.1 192.0.2.2", "seen-e")

    kubectl("create", "deployment", "d", "--image=none", "--replicas=2")
    wait_for_text(kubectl, operator, "2 wanted", "seen-d")
    eventually(lambda: _conditions(kubectl, "deployment", "d"), details=operator.log)
    kubectl("scale", "deployment", "d", "--replicas=3")
    wait_for_text(kubectl, operator, "3 wanted", "seen-d")
    assert not _OURS & _conditions(kubectl, "deployment", "d")
    spec = "spec: spec.replicas"
    assert [cause for cause in _causes(operator) if "replicas" in cause] == [spec]
    assert not operator.lines("Reconciliation failed")


def test_a_cluster_scoped_kind_without_spec_has_variables_and_conditions(
    kubectl: Kubectl, operator: Operator, project: Path
) -> None:
    """Its field beside the spec is a variable in snake case, and an edit of it wakes the role."""
    crd = kubectl.get("crd", "echoes.test.example.com")
    assert crd is not None
    names = {"kind": "Binding", "listKind": "BindingList", "plural": "bindings"}
    spec = crd["spec"] | {"names": names, "group": "rbac.test.example.com", "scope": "Cluster"}
    kubectl.apply(
        {
            "apiVersion": crd["apiVersion"],
            "kind": crd["kind"],
            "metadata": {"name": "bindings.rbac.test.example.com"},
            "spec": spec,
        }
    )
    kubectl.wait_for_kinds("bindings.rbac.test.example.com")
    _watch(
        project,
        {
            "group": "rbac.test.example.com",
            "kind": "Binding",
            "topLevelFields": ["rbacBindings"],
            "vars": {"text": "{{ rbac_bindings[0].role_name }}", "target": kubectl.namespace},
        },
    )
    kind, name = "bindings.rbac.test.example.com", kubectl.namespace
    body = {
        "apiVersion": "rbac.test.example.com/v1",
        "kind": "Binding",
        "metadata": {"name": name},
    }
    kubectl.apply(body | {"rbacBindings": [{"roleName": "view"}]})
    operator.start()
    wait_for_text(kubectl, operator, "view", f"seen-{name}")
    kubectl.apply(body | {"rbacBindings": [{"roleName": "edit"}]})
    wait_for_text(kubectl, operator, "edit", f"seen-{name}")
    kubectl("wait", "--for=condition=Successful", f"{kind}/{name}", "--timeout=180s")
    assert _causes(operator) == ["start", "spec: rbacBindings[0].roleName"]
    kubectl("delete", "crd", kind)


@pytest.mark.slow
def test_get_lists_the_watched_resources_of_an_operator_that_answers(
    cli: RunnerCli, kubectl: Kubectl, operator: Operator, project: Path, tmp_path: Path
) -> None:
    """Built-in kinds and those without status and finalizer, although nothing in them shows it.

    Their selectors apply, and a kind that the user may not list does not end the command.
    """
    _watch(
        project,
        {
            "kind": "ConfigMap",
            "selector": {"matchExpressions": [{"key": "copied", "operator": "Exists"}]},
            "vars": {"text": "word"},
        },
        {
            "group": "test.example.com",
            "kind": "Echo",
            "manageStatus": False,
            "vars": {"text": "echo"},
        },
    )
    operator.start()
    labels = {"name": "a", "labels": {"copied": "yes"}}
    kubectl.apply(echo("b"), {"apiVersion": "v1", "kind": "ConfigMap", "metadata": labels})
    for name in ("a", "b"):
        eventually(lambda: kubectl.get("configmap", f"seen-{name}"), details=operator.log)  # noqa: B023 called at once

    work_dir = f"--work-dir={operator.scratch / 'work'}"
    assert cli("get", work_dir, "--output=name").splitlines() == [
        "configmap/a",
        "echo.test.example.com/b",
    ]
    alone = cli.run("get")
    assert "kinds with no trace of an operator are not shown" in alone.stderr

    kubectl("create", "serviceaccount", "user")
    kubectl("create", "role", "user", "--verb=list", "--resource=echoes.test.example.com")
    account = f"{kubectl.namespace}:user"
    kubectl("create", "rolebinding", "user", "--role=user", f"--serviceaccount={account}")
    user_name = f"system:serviceaccount:{account}"
    kubectl.wait_for_permission(user_name, "list", "echoes.test.example.com")
    user = RunnerCli(kubectl.kubeconfig("user", tmp_path), kubectl.namespace)
    few = user.run("get", work_dir, "--output=name")
    assert (few.returncode, few.stdout) == (0, "echo.test.example.com/b\n")
    assert "Warning: an operator watches configmap, not shown: no permission" in few.stderr
    # The rest of what was named is shown, as kubectl does.
    partly = user.run("get", "configmaps", "echoes", "--output=name")
    assert (partly.returncode, partly.stdout) == (1, "echo.test.example.com/b\n")
    assert 'cannot list resource "configmaps"' in partly.stderr


def _shown(url: str) -> list[str]:
    """Return the names of the resources on the page of `operator-runner ui`."""
    with urllib.request.urlopen(f"{url}events", timeout=30) as events:
        for line in events:
            if line == b"event: resources\n":
                items = json.loads(next(events).removeprefix(b"data: "))["items"]
                return [each["name"] for each in items]
    raise AssertionError("the stream has ended")


@pytest.mark.slow
def test_a_resource_that_is_no_longer_selected_leaves_the_page_and_ends_in_a_watch(
    cli: RunnerCli, kubectl: Kubectl, operator: Operator, project: Path, tmp_path: Path
) -> None:
    """Its labels have changed: a watch prints it as Deselected, and again once it is selected."""
    _watch(
        project,
        {
            "kind": "ConfigMap",
            "selector": {"matchLabels": {"copied": "yes"}},
            "vars": {"text": "word"},
        },
    )
    operator.start()
    labels = {"name": "a", "labels": {"copied": "yes"}}
    kubectl.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": labels})
    eventually(lambda: kubectl.get("configmap", "seen-a"), details=operator.log)

    where = f"--work-dir={operator.scratch / 'work'}"
    with (
        served(cli.kubeconfig, cli.namespace, operator.scratch) as (_, url),
        watching(cli, tmp_path, {"get": ("get", where, "--output=json")}) as logs,
    ):

        def last_state() -> str:
            return str(complete_lines(logs["get"])[-1]["state"])

        eventually(lambda: _shown(url), ["a"].__eq__, details=operator.log)
        eventually(lambda: complete_lines(logs["get"]))
        kubectl("label", "configmap", "a", "copied-")
        eventually(lambda: _shown(url), [].__eq__)
        eventually(last_state, "Deselected".__eq__, details=logs["get"].read_text)
        kubectl("label", "configmap", "a", "copied=yes")
        eventually(lambda: _shown(url), ["a"].__eq__)
        eventually(last_state, "Deselected".__ne__)
