"""Convert roles and bindings into the permissions of a ClusterServiceVersion. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from operator_runner.core.model import Json
from operator_runner.tools.bundle.manifests import Manifests, name_of, nested, pod_of

Id = tuple[str, str]
"""Kind and name of an object."""


@dataclass(frozen=True, slots=True)
class Permissions:
    """`clusterPermissions` and `permissions` of a ClusterServiceVersion.

    `replaced` are the objects that the bundle omits: OLM creates ServiceAccounts, roles and
    bindings from the permissions.
    """

    cluster: list[Json]
    namespaced: list[Json]
    replaced: frozenset[Id]


def permissions(manifests: Manifests) -> Permissions:
    """Return the permissions of the ServiceAccounts of all Deployments.

    A binding with further subjects is kept, and so does its role. Raises ConfigError if a
    bound role is not among the manifests, because its rules cannot be copied.
    """
    accounts = {account_of(deployment) for deployment in manifests.of("Deployment")}
    roles = {(item["kind"], name_of(item)): item for kind in ("ClusterRole", "Role")
             for item in manifests.of(kind)}  # fmt: skip
    replaced: set[Id] = {("ServiceAccount", account) for account in accounts}
    kept: set[Id] = set()
    rules: dict[str, dict[str, list[Json]]] = {
        kind: defaultdict(list) for kind in ("ClusterRoleBinding", "RoleBinding")
    }
    for binding in (*manifests.of("ClusterRoleBinding"), *manifests.of("RoleBinding")):
        ref = binding.get("roleRef", {})
        role = (str(ref.get("kind")), str(ref.get("name")))
        ours = set(_accounts(binding)) & accounts
        if not ours:
            kept.add(role)
            continue
        if role not in roles:
            raise manifests.error_at(
                binding,
                "roleRef.name",
                f"{role[0]} {role[1]} is not among the manifests, so its rules cannot be copied;"
                " add a role with the rules that the operator needs",
            )
        for account in sorted(ours):
            rules[binding["kind"]][account] += roles[role].get("rules") or []
        if len(binding.get("subjects") or ()) > len(ours):
            kept |= {role, (binding["kind"], name_of(binding))}
        replaced |= {role, (binding["kind"], name_of(binding))}
    return Permissions(
        _by_account(rules["ClusterRoleBinding"]), _by_account(rules["RoleBinding"]),
        frozenset(replaced - kept),
    )  # fmt: skip


def account_of(deployment: Json) -> str:
    """Return the ServiceAccount of a Deployment's Pods."""
    return str(pod_of(deployment).get("serviceAccountName") or "default")


def _accounts(binding: Json) -> Iterator[str]:
    for subject in binding.get("subjects") or ():
        if subject.get("kind") == "ServiceAccount":
            yield str(nested(subject, "name"))


def _by_account(rules: dict[str, list[Json]]) -> list[Json]:
    return [
        {"serviceAccountName": account, "rules": rules[account]}
        for account in sorted(rules)
        if rules[account]
    ]
