"""Compare the rules granted to the operator's ServiceAccount with required ones. Pure."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from operator_runner.core.errors import ConfigError
from operator_runner.core.model import Json
from operator_runner.tools.rbac.access_rules import (
    CLUSTER_WIDE,
    OWN_NAMESPACE,
    AccessRule,
    Requirement,
)
from operator_runner.tools.rbac.manager_deployment import PLACEHOLDER, Manager

_ANY = {field: ["*"] for field in ("apiGroups", "resources", "nonResourceURLs", "verbs")}
_ADMIN: Json = {"kind": "ClusterRole", "metadata": {"name": "cluster-admin"}, "rules": [_ANY]}
"""A role of each cluster, which no manifests have."""


@dataclass(frozen=True, slots=True)
class GrantedRule:
    """A rule, possibly with wildcards, and the role that grants it."""

    rule: AccessRule
    role: str


@dataclass(frozen=True, slots=True)
class _Account:
    name: str
    namespace: str


def grants_in(documents: Sequence[Json], manager: Manager | None) -> list[GrantedRule]:
    """Return the rules that the manifests grant to the operator.

    Without bindings, every role counts in its own namespace. Raises ConfigError if a bound role is
    missing, or if the operator's ServiceAccount is ambiguous.
    """
    roles = {
        (body["kind"], body["metadata"]["name"], _namespace(body)): body
        for body in documents
        if body.get("kind") in {"Role", "ClusterRole"}
    }
    bindings = [b for b in documents if b.get("kind") in {"RoleBinding", "ClusterRoleBinding"}]
    if not bindings:
        own = manager.namespace if manager else PLACEHOLDER
        return [granted for body in roles.values() for granted in _rights(body, _scope(body, own))]
    account = _account(bindings, manager)
    found: list[GrantedRule] = []
    for binding in bindings:
        if account in _subjects(binding):
            body = _bound(binding, roles)
            found += _rights(body, _scope(binding, account.namespace))
    return found


def as_olm_grants(
    granted: Sequence[GrantedRule], requirements: Sequence[Requirement]
) -> list[GrantedRule]:
    """Return the rules as the OLM grants them where it chooses all namespaces.

    It makes ClusterRoles of Roles; that is shown only for the rules that are required everywhere.
    """
    required = [one.rule for one in requirements if one.rule.scope == CLUSTER_WIDE]
    return [
        replace(one, rule=wide)
        if one.rule.scope == OWN_NAMESPACE
        and any(map((wide := replace(one.rule, scope=CLUSTER_WIDE)).covers, required))
        else one
        for one in granted
    ]


def _account(bindings: Sequence[Json], manager: Manager | None) -> _Account:
    if manager is not None:
        return _Account(manager.account, manager.namespace)
    accounts = {subject for binding in bindings for subject in _subjects(binding)}
    if len(accounts) != 1:
        names = ", ".join(sorted(account.name for account in accounts)) or "none"
        raise ConfigError(
            f"expected roles bound to one ServiceAccount, found: {names}; check them together with"
            " the operator's Deployment, which names its ServiceAccount"
        )
    return accounts.pop()


def _subjects(binding: Json) -> list[_Account]:
    return [
        _Account(subject["name"], subject.get("namespace") or PLACEHOLDER)
        for subject in binding.get("subjects") or ()
        if subject.get("kind") == "ServiceAccount"
    ]


def _bound(binding: Json, roles: dict[tuple[str, str, str], Json]) -> Json:
    reference = binding["roleRef"]
    namespace = _namespace(binding) if reference["kind"] == "Role" else ""
    body = roles.get((reference["kind"], reference["name"], namespace))
    if body is None and reference["name"] == _ADMIN["metadata"]["name"]:
        return _ADMIN
    if body is None:
        raise ConfigError(
            f"{binding['kind']} {binding['metadata']['name']}: its {reference['kind']}"
            f" {reference['name']} is not in the checked files; add its file, or bind a role of"
            " the project"
        )
    return body


def _rights(body: Json, scope: str) -> Iterator[GrantedRule]:
    role = f"{body['kind']} {body['metadata']['name']}"
    if body.get("aggregationRule"):
        raise ConfigError(
            f"{role}: aggregationRule is not supported, because its rules are resolved in the"
            " cluster; list the rules in the role"
        )
    for rule in body.get("rules") or ():
        for path, verb in itertools.product(rule.get("nonResourceURLs") or (), rule["verbs"]):
            yield GrantedRule(AccessRule("", "", verb, path=path), role)
        for group, resource, verb, name in itertools.product(
            rule.get("apiGroups") or (),
            rule.get("resources") or (),
            rule["verbs"],
            rule.get("resourceNames") or ("",),
        ):
            yield GrantedRule(AccessRule(group, resource, verb, scope, name), role)


def _scope(body: Json, own: str) -> str:
    if body["kind"].startswith("Cluster"):
        return CLUSTER_WIDE
    namespace = _namespace(body)
    return OWN_NAMESPACE if namespace == own else namespace


def _namespace(body: Json) -> str:
    if body["kind"].startswith("Cluster"):
        return ""
    return body["metadata"].get("namespace") or PLACEHOLDER


def differences(requirements: Sequence[Requirement], granted: Sequence[GrantedRule]) -> list[str]:
    """Return a line for each resource with missing rules, then for each with superfluous ones.

    `requirements` are the minimal ones.
    """
    return [*missing_rules(requirements, granted), *_superfluous_rules(requirements, granted)]


def missing_rules(requirements: Sequence[Requirement], granted: Sequence[GrantedRule]) -> list[str]:
    """Return a line for each resource with required rules that are not granted."""
    rules = {one.rule for one in granted}
    missing = (requirement for requirement in requirements if not requirement.is_met(rules))
    return [*_lines("missing", ((each.rule, each.reason) for each in missing))]


def _superfluous_rules(
    requirements: Sequence[Requirement], granted: Sequence[GrantedRule]
) -> list[str]:
    """Return a line for each resource with granted rules that are not required.

    A rule that is wider than required is superfluous; its line lists the rules that suffice.
    """
    rules = {one.rule for one in granted}
    required = {requirement.rule for requirement in requirements}
    for requirement in requirements:
        if not any(rule.covers(requirement.rule) for rule in rules):
            required |= {*requirement.instead}
    superfluous = (
        (one.rule, f"granted by {one.role}; {_alternative(one.rule, requirements)}")
        for one in granted
        if one.rule not in required
    )
    return [*_lines("superfluous", superfluous)]


def _lines(word: str, findings: Iterable[tuple[AccessRule, str]]) -> Iterator[str]:
    """Yield a line for the rules that differ in their verbs alone, of one reason."""
    verbs: defaultdict[tuple[AccessRule, str], set[str]] = defaultdict(set)
    for rule, reason in findings:
        verbs[replace(rule, verb=""), reason].add(rule.verb)
    for (rule, reason), found in verbs.items():
        yield f"{word}: {replace(rule, verb=', '.join(sorted(found)))}: {reason}"


def _alternative(granted: AccessRule, requirements: Sequence[Requirement]) -> str:
    """Return the rules that suffice in place of a wider one, if any."""
    enough = sorted(
        {
            str(requirement.rule)
            for requirement in requirements
            if any(map(granted.covers, (requirement.rule, *requirement.instead)))
        }
    )
    if enough:
        return f"sufficient: {', '.join(enough)}"
    return "required by neither the runner nor a recorded request"
