"""What the operator may do, taken from roles and bindings to where OLM reads it. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from operator_runner.core.model import Json
from operator_runner.tools.bundle.project import Rendered, dig, name_of, pod_of

Id = tuple[str, str]
"""Kind and name of an object."""


@dataclass(frozen=True, slots=True)
class Permissions:
    """`clusterPermissions` and `permissions` of a ClusterServiceVersion.

    `taken` are the objects that need not be manifests of the bundle any more: OLM makes accounts,
    roles and bindings from the permissions.
    """

    cluster: list[Json]
    namespaced: list[Json]
    taken: frozenset[Id]


def permissions(rendered: Rendered) -> Permissions:
    """Return what the accounts of all Deployments may do.

    A binding that names others as well stays a manifest, and so does its role. Raises ConfigError
    for a role that is not among the manifests: its rules could not be copied.
    """
    accounts = {account_of(deployment) for deployment in rendered.of("Deployment")}
    roles = {(each["kind"], name_of(each)): each for kind in ("ClusterRole", "Role")
             for each in rendered.of(kind)}  # fmt: skip
    taken: set[Id] = {("ServiceAccount", account) for account in accounts}
    kept: set[Id] = set()
    rules: dict[str, dict[str, list[Json]]] = {
        kind: defaultdict(list) for kind in ("ClusterRoleBinding", "RoleBinding")
    }
    for binding in (*rendered.of("ClusterRoleBinding"), *rendered.of("RoleBinding")):
        ref = binding.get("roleRef", {})
        role = (str(ref.get("kind")), str(ref.get("name")))
        ours = set(_accounts(binding)) & accounts
        if not ours:
            kept.add(role)
            continue
        if role not in roles:
            raise rendered.problem(
                binding,
                "roleRef.name",
                f"the {role[0]} {role[1]} is not among the manifests, so its rules cannot be"
                " copied; write a role with the rules that the operator needs",
            )
        for account in sorted(ours):
            rules[binding["kind"]][account] += roles[role].get("rules") or []
        if len(binding.get("subjects") or ()) > len(ours):
            kept |= {role, (binding["kind"], name_of(binding))}
        taken |= {role, (binding["kind"], name_of(binding))}
    return Permissions(
        _by_account(rules["ClusterRoleBinding"]), _by_account(rules["RoleBinding"]),
        frozenset(taken - kept),
    )  # fmt: skip


def account_of(deployment: Json) -> str:
    """Return the ServiceAccount of a Deployment's Pods."""
    return str(pod_of(deployment).get("serviceAccountName") or "default")


def _accounts(binding: Json) -> Iterator[str]:
    for subject in binding.get("subjects") or ():
        if subject.get("kind") == "ServiceAccount":
            yield str(dig(subject, "name"))


def _by_account(rules: dict[str, list[Json]]) -> list[Json]:
    return [
        {"serviceAccountName": account, "rules": rules[account]}
        for account in sorted(rules)
        if rules[account]
    ]
