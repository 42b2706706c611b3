"""An RBACDefinition is ServiceAccounts and bindings."""

from __future__ import annotations

from typing import Any

from operator_runner.testing import Reconcile


def definition(name: str, **roles: Any) -> dict[str, Any]:
    """Return an RBACDefinition that gives jane these roles."""
    return {
        "apiVersion": "rbacmanager.reactiveops.io/v1beta1",
        "kind": "RBACDefinition",
        "metadata": {"name": name},
        "rbacBindings": [{"name": "web", "subjects": [{"kind": "User", "name": "jane"}], **roles}],
    }


def test_each_role_is_a_binding(reconcile: Reconcile) -> None:
    """The next run changes nothing; a role that is removed loses its binding."""
    name = reconcile.namespace
    edit = {"clusterRole": "edit", "namespace": name}
    roles = {"clusterRoleBindings": [{"clusterRole": "view"}], "roleBindings": [edit]}
    outcome = reconcile(definition(name, **roles))
    assert outcome.successful
    everywhere = outcome.created("ClusterRoleBinding", f"{name}-web-view")
    assert [each["name"] for each in everywhere["subjects"]] == ["jane"]
    here = outcome.created("RoleBinding", f"{name}-web-edit")
    assert here["roleRef"]["name"] == "edit"

    again = reconcile(definition(name, **roles))
    assert (again.created, again.changed, again.deleted) == ([], [], [])

    fewer = reconcile(definition(name, roleBindings=[edit]))
    assert fewer.deleted("ClusterRoleBinding", f"{name}-web-view")
    assert (fewer.created, fewer.changed) == ([], [])


def test_contradicting_entries_are_refused(reconcile: Reconcile) -> None:
    """The failure names the task and the solution; nothing is written."""
    account = {"kind": "ServiceAccount", "name": "ci", "namespace": reconcile.namespace}
    wanted = definition(reconcile.namespace, clusterRoleBindings=[{"clusterRole": "view"}])
    wanted["rbacBindings"] += [
        {"name": name, "subjects": [{**account, "imagePullSecrets": [name]}]}
        for name in ("one", "other")
    ]
    outcome = reconcile(wanted)
    assert outcome.failure is not None
    assert outcome.failure.task == "Refuse entries that contradict each other"
    assert "rename one of them" in outcome.failure.message
    assert outcome.created == []
