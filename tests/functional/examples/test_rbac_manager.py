"""The example RBAC Manager: bindings of subjects to roles follow its definitions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from operator_runner.devcluster import Cluster
from tests.support.examples import Example, rendered, running
from tests.support.kubectl import Json, Kubectl
from tests.support.waiting import eventually

KIND = "rbacdefinitions.rbacmanager.reactiveops.io"
USERS = [{"kind": "User", "name": "jane"}, {"kind": "User", "name": "joe"}]


@pytest.fixture(scope="module")
def example(
    control_plane_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Example]:
    """Run the operator with exactly the permissions of its config/."""
    scratch = tmp_path_factory.mktemp("rbac-manager")
    with running("rbac-manager", control_plane_cluster, scratch) as example:
        yield example


class Definition:
    """One RBACDefinition, named after the namespace of its test."""

    def __init__(self, example: Example, kubectl: Kubectl) -> None:
        self._log, self._kubectl = example.operator.log, kubectl
        self.name = kubectl.namespace

    def apply(self, *bindings: Json) -> None:
        """Apply the definition with these groups of subjects."""
        self._kubectl.apply(
            {
                "apiVersion": "rbacmanager.reactiveops.io/v1beta1",
                "kind": "RBACDefinition",
                "metadata": {"name": self.name},
                "rbacBindings": list(bindings),
            }
        )

    def bound(self, kind: str = "rolebinding", role: str = "view", group: str = "web") -> Json:
        """Wait for a binding, and return it."""
        name = f"{self.name}-{group}-{role}"
        return eventually(lambda: self._kubectl.get(kind, name), details=self._log) or {}

    def unbound(self, kind: str = "rolebinding", role: str = "view", group: str = "web") -> None:
        """Wait until there is no such binding."""
        name = f"{self.name}-{group}-{role}"
        eventually(
            lambda: self._kubectl.get(kind, name), lambda body: body is None, details=self._log
        )

    def may(self, user: str, verb: str, resource: str, namespace: str, answer: str) -> None:
        """Wait until the API server answers whether a user may do something: `yes` or `no`."""
        question = ("auth", "can-i", verb, resource, f"--as={user}", f"--namespace={namespace}")
        eventually(
            lambda: self._kubectl.run(*question).stdout,
            lambda output: output.strip() == answer,
            details=self._log,
        )


@pytest.fixture
def definition(example: Example, kubectl: Kubectl) -> Iterator[Definition]:
    """Give a definition, which is deleted after the test."""
    definition = Definition(example, kubectl)
    yield definition
    kubectl("delete", KIND, definition.name, "--ignore-not-found")


def web(*subjects: Json, **roles: Any) -> Json:
    return {"name": "web", "subjects": list(subjects) or USERS, **roles}


def uid(body: Json) -> str:
    return str(body["metadata"]["uid"])


def test_a_deleted_or_edited_binding_returns(kubectl: Kubectl, definition: Definition) -> None:
    """Of the whole cluster and of a namespace; two users of one definition have the access."""
    here = {"clusterRole": "edit", "namespace": kubectl.namespace}
    definition.apply(web(clusterRoleBindings=[{"clusterRole": "view"}], roleBindings=[here]))
    first = definition.bound("clusterrolebinding")
    assert [each["name"] for each in first["subjects"]] == ["jane", "joe"]
    definition.bound(role="edit")
    for user in ("jane", "joe"):
        definition.may(user, "list", "pods", "default", "yes")
        definition.may(user, "create", "pods", kubectl.namespace, "yes")
        definition.may(user, "create", "pods", "default", "no")

    kubectl("delete", "clusterrolebinding", f"{definition.name}-web-view")
    assert uid(definition.bound("clusterrolebinding")) != uid(first)
    stranger = [{"kind": "User", "name": "mallory", "apiGroup": "rbac.authorization.k8s.io"}]
    kubectl.merge("rolebinding", f"{definition.name}-web-edit", {"subjects": stranger})
    definition.may("mallory", "create", "pods", kubectl.namespace, "no")
    definition.may("jane", "create", "pods", kubectl.namespace, "yes")
    # Both answers are those from before, too, until the API server has seen the edit.
    eventually(
        lambda: [each["name"] for each in definition.bound(role="edit")["subjects"]],
        lambda names: names == ["jane", "joe"],
    )


def test_a_role_that_vanishes_and_returns_is_bound_again(
    kubectl: Kubectl, definition: Definition
) -> None:
    """Nothing is bound to a Role or a ClusterRole that does not exist."""
    cluster_role = f"{definition.name}:reader"
    there = {"role": "reader", "namespace": kubectl.namespace}
    roles = {"clusterRoleBindings": [{"clusterRole": cluster_role}], "roleBindings": [there]}
    kubectl("create", "role", "reader", "--verb=get", "--resource=pods")
    definition.apply(web(**roles))
    first = definition.bound(role="reader")
    kubectl("create", "clusterrole", cluster_role, "--verb=get", "--resource=nodes")
    definition.bound("clusterrolebinding", cluster_role)

    kubectl("delete", "role", "reader")
    definition.unbound(role="reader")
    kubectl("delete", "clusterrole", cluster_role)
    definition.unbound("clusterrolebinding", cluster_role)
    kubectl("create", "role", "reader", "--verb=get", "--resource=pods")
    assert uid(definition.bound(role="reader")) != uid(first)
    definition.may("jane", "get", "pods", kubectl.namespace, "yes")


def test_namespaces_are_followed_by_their_labels(kubectl: Kubectl, definition: Definition) -> None:
    """A newly labelled one gets its binding, an unlabelled one loses it, a new one has it."""
    team, name = definition.name, kubectl.namespace
    other = f"{name}-other"
    selector = {
        "matchLabels": {"example.com/Team": team},
        "matchExpressions": [
            {"key": "tier", "operator": "In", "values": ["a", "b"]},
            {"key": "legacy", "operator": "DoesNotExist"},
        ],
    }
    definition.apply(
        web(
            roleBindings=[
                {"clusterRole": "view", "namespaceSelector": selector},
                {"clusterRole": "edit", "namespace": other},
            ]
        )
    )
    labels = {"example.com/Team": team, "tier": "b"}
    kubectl("label", "namespace", name, *(f"{key}={value}" for key, value in labels.items()))
    definition.bound()
    kubectl("label", "namespace", name, "legacy=")
    definition.unbound()
    kubectl("label", "namespace", name, "legacy-")
    definition.bound()
    kubectl("label", "namespace", name, "tier-")
    definition.unbound()

    # A referenced namespace that does not exist yet is not a failure.
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other}})
    there = Kubectl(kubectl.program, other)
    eventually(lambda: there.get("rolebinding", f"{name}-web-edit"))
    body = kubectl.get(KIND, name)
    assert body is not None
    found = {each["type"]: each["status"] for each in body["status"]["conditions"]}
    assert found.get("Failure", "False") == "False"
    kubectl("delete", "namespace", other, "--wait=false")


def test_a_changed_role_ref_recreates_the_binding(
    kubectl: Kubectl, definition: Definition, example: Example
) -> None:
    """It is immutable: a ClusterRole in the place of a Role, of the same name and of another."""
    here = {"namespace": kubectl.namespace}
    kubectl("create", "role", "view", "--verb=get", "--resource=pods")
    definition.apply(web(roleBindings=[here | {"role": "view"}]))
    first = definition.bound()
    assert first["roleRef"]["kind"] == "Role"
    definition.apply(web(roleBindings=[here | {"clusterRole": "view"}]))
    second = eventually(
        definition.bound,
        lambda body: body["roleRef"]["kind"] == "ClusterRole",
        details=example.operator.log,
    )
    assert uid(second) != uid(first)
    definition.apply(web(roleBindings=[here | {"clusterRole": "edit"}]))
    definition.bound(role="edit")
    definition.unbound()


def test_an_empty_list_removes_all_and_nothing_of_others(
    kubectl: Kubectl, definition: Definition, example: Example
) -> None:
    """Bindings and ServiceAccounts of others stay, those with the same label too."""
    name = kubectl.namespace
    account = {"kind": "ServiceAccount", "namespace": name}
    kubectl("create", "serviceaccount", "theirs")
    kubectl("create", "rolebinding", "theirs", "--clusterrole=view", "--user=jane")
    kubectl("label", "rolebinding/theirs", "serviceaccount/theirs", "rbac-manager=reactiveops")
    theirs = [kubectl.get(kind, "theirs") for kind in ("rolebinding", "serviceaccount")]
    definition.apply(
        web(
            account | {"name": "ci", "imagePullSecrets": ["registry"]},
            account | {"name": "theirs", "imagePullSecrets": ["registry"]},
            clusterRoleBindings=[{"clusterRole": "view"}],
            roleBindings=[{"clusterRole": "edit", "namespace": name}],
        )
    )
    definition.bound("clusterrolebinding")
    definition.bound(role="edit")
    ours = (
        eventually(lambda: kubectl.get("serviceaccount", "ci"), details=example.operator.log) or {}
    )
    assert ours["imagePullSecrets"] == [{"name": "registry"}]
    kubectl.merge("serviceaccount", "ci", {"imagePullSecrets": None})
    eventually(
        lambda: kubectl.get("serviceaccount", "ci") or {},
        lambda body: body.get("imagePullSecrets") == [{"name": "registry"}],
        details=example.operator.log,
    )
    for user in ("ci", "theirs"):
        full = f"system:serviceaccount:{name}:{user}"
        definition.may(full, "create", "pods", name, "yes")

    definition.apply()
    definition.unbound("clusterrolebinding")
    definition.unbound(role="edit")
    eventually(
        lambda: kubectl.get("serviceaccount", "ci"),
        lambda body: body is None,
        details=example.operator.log,
    )
    assert [kubectl.get(kind, "theirs") for kind in ("rolebinding", "serviceaccount")] == theirs

    # A foreign binding with that name is refused, and kept.
    foreign = f"{name}-web-view"
    kubectl("create", "rolebinding", foreign, "--clusterrole=edit", "--user=mallory")
    before = kubectl.get("rolebinding", foreign)
    definition.apply(web(roleBindings=[{"clusterRole": "view", "namespace": name}]))
    kubectl("wait", "--for=condition=Failure", f"{KIND}/{name}", "--timeout=180s")
    assert kubectl.get("rolebinding", foreign) == before


def test_a_deleted_definition_takes_its_bindings_along(
    kubectl: Kubectl, definition: Definition, example: Example
) -> None:
    """The garbage collector deletes what belongs to it; the other definition keeps its own."""
    here = {"clusterRole": "view", "namespace": kubectl.namespace}
    definition.apply(web(roleBindings=[here]))
    other = Definition(example, kubectl)
    other.name = f"{definition.name}-other"
    other.apply(web(roleBindings=[here]))
    definition.bound()
    kept = other.bound()
    kubectl("delete", KIND, definition.name)
    definition.unbound()
    assert other.bound() == kept
    kubectl("delete", KIND, other.name)
    other.unbound()


def test_the_operator_binds_roles_that_it_does_not_hold(
    kubectl: Kubectl, definition: Definition, example: Example
) -> None:
    """By `bind`, never by `escalate`, which would let it change roles."""
    rules = [
        rule
        for body in rendered(kubectl, example.project)
        if body["kind"] in {"ClusterRole", "Role"}
        for rule in body["rules"]
    ]
    verbs = {verb for rule in rules for verb in rule["verbs"]}
    assert "bind" in verbs
    assert not verbs & {"escalate", "impersonate", "*"}
    account = "system:serviceaccount:rbac-manager-system:rbac-manager-controller-manager"
    definition.may(account, "delete", "pods", kubectl.namespace, "no")
    definition.apply(web(clusterRoleBindings=[{"clusterRole": "cluster-admin"}]))
    definition.bound("clusterrolebinding", "cluster-admin")
    definition.may("jane", "delete", "pods", kubectl.namespace, "yes")
    definition.may(account, "patch", "clusterroles", kubectl.namespace, "no")


def test_mistakes_are_refused_by_the_api_server(kubectl: Kubectl, definition: Definition) -> None:
    """The schema has what cannot be bound."""
    for mistake, message in (
        ({"roleBindings": [{"clusterRole": "view"}]}, "exactly one of namespace"),
        ({"roleBindings": [{"namespace": "default"}]}, "exactly one of clusterRole"),
        ({"subjects": [{"kind": "ServiceAccount", "name": "a"}]}, "needs a namespace"),
    ):
        with pytest.raises(AssertionError, match=message):
            definition.apply(web() | mistake)
    assert kubectl.get(KIND, definition.name) is None
