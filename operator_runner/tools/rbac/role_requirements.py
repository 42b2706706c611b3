"""Derive requirements from the recorded requests of roles. Pure."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from operator_runner.core.model import Ownership, Watch
from operator_runner.proxy.ownership import can_be_owned
from operator_runner.proxy.request_info import RequestInfo
from operator_runner.proxy.request_permissions import ANY, OWN, RBAC, Permission
from operator_runner.tools.rbac.access_rules import (
    CLUSTER_WIDE,
    OWN_NAMESPACE,
    AccessRule,
    Requirement,
)
from operator_runner.tools.rbac.kinds import KindTable
from operator_runner.tools.rbac.operator_requirements import EnabledFeatures

_CHANGES = frozenset({"delete", "patch", "update"})


def requirements_of_roles(
    recorded: Sequence[Permission],
    watches: Sequence[Watch],
    kinds: KindTable,
    features: EnabledFeatures,
) -> Iterator[Requirement]:
    """Yield the requirements of recorded requests, and of watching the objects that roles create.

    Requests of kinds that are no longer watched are skipped, see `unwatched_kinds`.
    """
    by_kind = {watch.gvk.kind_and_group: watch for watch in watches}
    granted: defaultdict[tuple[str, str], list[Permission]] = defaultdict(list)
    for permission in recorded:
        where = permission.namespace if permission.role.startswith("roles/") else ""
        granted[permission.role, where].append(permission)
    for permission in recorded:
        watch = by_kind.get(permission.by)
        if watch is None and permission.by:
            continue
        if permission.role:
            yield from _granting(permission, watch, features)
            continue
        where = permission.namespace if permission.resource == "roles" else ""
        bound = f"{permission.resource}/{permission.name}" if _binds(permission) else None
        for scope in _scopes(permission, features):
            held = tuple(_rule(each, scope) for each in granted.get((bound or "", where), ()))
            yield Requirement(_rule(permission, scope), _who(watch), instead=held if bound else ())
        if watch is not None and _is_followed(permission, watch, kinds, features):
            yield from _following(permission, watch, features)
        if watch is not None and permission.resource and features.inject_owner_ref:
            yield from _verifying(permission, watch, features)


def unwatched_kinds(recorded: Sequence[Permission], watches: Sequence[Watch]) -> list[str]:
    """Return the kinds of recorded requests that are no longer watched."""
    names = {watch.gvk.kind_and_group for watch in watches} | {""}
    return sorted({permission.by for permission in recorded} - names)


def _granting(
    permission: Permission, watch: Watch | None, features: EnabledFeatures
) -> Iterator[Requirement]:
    """Yield the requirement of a rule that a role grants: the rule, or `escalate`.

    A wildcard needs `escalate`, because required rules have none.
    """
    resource = permission.role.partition("/")[0]
    for scope in _scopes(permission, features):
        rule, escalate = _rule(permission, scope), AccessRule(RBAC, resource, "escalate", scope)
        texts = {rule.verb, rule.group, rule.resource, rule.resource[:2], rule.path[-1:]}
        required, other = (escalate, rule) if texts & {"*", "*/"} else (rule, escalate)
        yield Requirement(required, f"{_who(watch)} for {permission.role}", instead=(other,))


def _binds(permission: Permission) -> bool:
    return (permission.group, permission.verb) == (RBAC, "bind")


def _rule(permission: Permission, scope: str) -> AccessRule:
    """Return the rule of a permission; names with ANY differ for each resource."""
    name = "" if _binds(permission) and ANY in permission.name else permission.name
    group, resource, path = permission.group, permission.resource, permission.path
    return AccessRule(group, resource, permission.verb, "" if path else scope, name, path)


def _following(
    permission: Permission, watch: Watch, features: EnabledFeatures
) -> Iterator[Requirement]:
    """Yield the requirements of watching a kind that a role creates."""
    for scope in features.scopes if permission.namespace else (CLUSTER_WIDE,):
        for verb in ("list", "watch"):
            reason = f"the runner watches objects that {_content(watch)} creates"
            yield Requirement(
                AccessRule(permission.group, permission.resource, verb, scope), reason
            )


def _verifying(
    permission: Permission, watch: Watch, features: EnabledFeatures
) -> Iterator[Requirement]:
    """Yield the requirements of reading the owner of an object that a role writes."""
    info = RequestInfo(permission.group, "", permission.namespace, *_split(permission.resource))
    if not can_be_owned(replace(info, subresource="")):
        return
    verbs: tuple[str, ...] = ()
    if watch.ownership is Ownership.IGNORE:
        verbs = ("get",) if permission.verb == "update" and not info.subresource else ()
    elif permission.verb == "deletecollection":
        verbs = ("list",)
    elif permission.verb in _CHANGES or (permission.verb == "create" and info.subresource):
        adopts = watch.ownership is Ownership.ADOPT and permission.verb in {"patch", "update"}
        verbs = ("get", "patch") if adopts else ("get",)
    for scope, verb in itertools.product(_scopes(permission, features), verbs):
        reason = f"the proxy reads the owner of objects that {_content(watch)} writes"
        yield Requirement(
            AccessRule(permission.group, info.resource, verb, scope, permission.name), reason
        )


def _is_followed(
    permission: Permission, watch: Watch, kinds: KindTable, features: EnabledFeatures
) -> bool:
    info = RequestInfo(permission.group, "", permission.namespace, *_split(permission.resource))
    if permission.verb != "create" or not permission.resource or not can_be_owned(info):
        return False
    ignored = {(gvk.group, kinds.plural(gvk).name) for gvk in watch.blacklist}
    is_far = not permission.namespace and kinds.plural(watch.gvk).namespaced
    return (
        features.inject_owner_ref
        and (watch.watch_cluster_scoped_resources or not is_far)
        and watch.watch_dependent_resources
        and (permission.group, permission.resource) not in ignored
    )


def _split(resource: str) -> tuple[str, str, str]:
    """Return resource, name and subresource, the arguments of RequestInfo."""
    plural, _, subresource = resource.partition("/")
    return plural, "", subresource


def _scopes(permission: Permission, features: EnabledFeatures) -> tuple[str, ...]:
    if permission.namespace and permission.namespace == features.own_namespace:
        return (OWN_NAMESPACE,)
    fixed: Mapping[str, tuple[str, ...]] = {OWN: features.scopes, ANY: (CLUSTER_WIDE,)}
    return fixed.get(permission.namespace, (permission.namespace,))


def _who(watch: Watch | None) -> str:
    return (
        "a program outside of runs requests it"
        if watch is None
        else f"{_content(watch)} requests it"
    )


def _content(watch: Watch) -> str:
    path = watch.content.path
    return f"the role {path.name}" if watch.content.role else f"the playbook {path.name}"
