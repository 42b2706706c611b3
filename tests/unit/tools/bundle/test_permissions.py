"""Roles and bindings become permissions of a ClusterServiceVersion."""

from __future__ import annotations

import pytest

from operator_runner.core.errors import ConfigError
from operator_runner.tools.bundle.manifests import permissions
from tests.support.manifests import (
    LEADER_ROLE,
    LEASES,
    MANAGER_ROLE,
    RULE,
    binding,
    rendered,
    role,
)

ACCOUNT = "web-operator-manager"


def test_rights_are_split_by_binding() -> None:
    """A ClusterRoleBinding gives rights everywhere, a RoleBinding in the operator's namespace."""
    made = permissions(rendered())
    assert made.cluster == [{"serviceAccountName": ACCOUNT, "rules": [RULE]}]
    assert made.namespaced == [{"serviceAccountName": ACCOUNT, "rules": [LEASES]}]


def test_objects_that_olm_creates_are_omitted() -> None:
    """Account, roles and bindings of the operator are omitted; roles for users are kept."""
    assert permissions(rendered()).replaced == {
        ("ServiceAccount", ACCOUNT),
        ("ClusterRole", "manager-role"),
        ("ClusterRoleBinding", "manager-binding"),
        ("Role", "leader-role"),
        ("RoleBinding", "leader-binding"),
    }


def test_a_cluster_role_bound_in_a_namespace_counts_there() -> None:
    """The kind of the binding decides."""
    made = permissions(rendered(binding("RoleBinding", "more", MANAGER_ROLE)))
    assert made.namespaced == [{"serviceAccountName": ACCOUNT, "rules": [LEASES, RULE]}]


def test_a_shared_binding_is_kept() -> None:
    """The rights of the others must not get lost."""
    made = permissions(rendered(binding("RoleBinding", "shared", LEADER_ROLE, "someone")))
    assert ("RoleBinding", "shared") not in made.replaced
    assert ("Role", "leader-role") not in made.replaced
    assert made.namespaced[0]["rules"] == [LEASES, LEASES]


def test_a_role_that_is_not_there_is_refused() -> None:
    """The rules of cluster-admin cannot be copied, and should not be."""
    admin = role("ClusterRole", "cluster-admin")
    with pytest.raises(
        ConfigError, match=r"ClusterRoleBinding all: roleRef\.name: .*cluster-admin"
    ):
        permissions(rendered(binding("ClusterRoleBinding", "all", admin)))
