"""Requirements of the runner's own API requests and of roles. Pure.

Each request of the runner has its line here. They are those of `controller/sources` (list and
watch), of `conversion`, and in `kube` of `cluster` (the resource and its status), `events`,
`leader_election`, `membership`, `shard_leases`, `reviews` and `operator_condition`,
and of `ansible.jobs.client`. Those of roles are derived from their recorded requests.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from operator_runner.core.model import GVK, Ownership, Watch
from operator_runner.proxy.ownership import can_be_owned
from operator_runner.proxy.request_info import ANY, OWN, RBAC, Permission, RequestInfo
from operator_runner.tools.rbac.access_rules import (
    CLUSTER_WIDE,
    MANAGER,
    OWN_NAMESPACE,
    AccessRule,
    KindTable,
    PluralName,
    Requirement,
    minimal,
    without_names,
)

LEADER, METRICS, WEBHOOK = "leader-election-role", "metrics-auth-role", "webhook-role"
JOBS = "jobs-role"
_JOB_VERBS = (
    ("batch", "jobs", ("create", "delete", "get", "list")),
    ("", "pods", ("list",)),
    ("", "secrets", ("create", "delete", "get")),
)
_LIST_WATCH = ("list", "watch")
_CRDS = ("apiextensions.k8s.io", "customresourcedefinitions")


@dataclass(frozen=True, slots=True)
class EnabledFeatures:
    """Features that flags and environment enable; scopes are those of AccessRule.

    `lease` and `operator_condition` are names, empty if disabled.
    """

    own_namespace: str = ""
    """Name of the operator's namespace; empty if kustomize sets it."""
    scopes: tuple[str, ...] = (CLUSTER_WIDE,)
    """Watched namespaces."""
    lease: str = ""
    lease_scope: str = OWN_NAMESPACE
    shards: bool = False
    reviews: bool = False
    """Whether readers of metrics are authenticated and authorized by the API server."""
    reviewer: str = "--metrics-require-rbac"
    """The flag or the sidecar that asks the API server."""
    operator_condition: str = ""
    webhook: bool = False
    """Whether the conversion webhook registers itself in the CRDs."""
    webhook_secret: tuple[str, str] | None = None
    """Scope and name of the Secret with the certificates that all replicas use."""
    job_secret: tuple[str, str] | None = None
    """Scope and name of the Secret with the certificates of the port for Jobs."""
    job_port: int = 0
    """Port for Jobs; 0 if there is no Service for it."""
    inject_owner_ref: bool = True

    def where(self, plural: PluralName) -> tuple[str, ...]:
        """Return the scopes in which a kind is watched."""
        return self.scopes if plural.namespaced else (CLUSTER_WIDE,)


def requirements_of_runner(
    watches: Sequence[Watch], kinds: KindTable, features: EnabledFeatures
) -> Iterator[Requirement]:
    """Yield the requirements of the runner, independent of roles."""
    for watch in watches:
        yield from _of_watch(watch, kinds, features)
    yield from _of_process(features)
    if features.webhook_secret and any(watch.conversions for watch in watches):
        reason = "the replicas share the certificates of the conversion webhook"
        yield from _of_certificates(*features.webhook_secret, reason, WEBHOOK)
    if features.job_secret and any(watch.job for watch in watches):
        reason = "the replicas share the certificates of the port for Jobs"
        yield from _of_certificates(*features.job_secret, reason, JOBS)


def _of_certificates(scope: str, name: str, reason: str, role: str) -> Iterator[Requirement]:
    yield from _for("", "secrets", ("create",), (scope,), reason, role=role)
    yield from _for("", "secrets", ("get", "update"), (scope,), reason, name=name, role=role)


def _of_jobs(watch: Watch, own_namespace: str) -> Iterator[Requirement]:
    """Yield the requirements of the Jobs of a watch; each run has a name of its own."""
    if watch.job is None:
        return
    namespace = watch.job.namespace
    scope = OWN_NAMESPACE if namespace in {"", own_namespace} else namespace
    for group, resource, verbs in _JOB_VERBS:
        reason = f"runs of {watch.gvk.kind} are Jobs"
        yield from _for(group, resource, verbs, (scope,), reason, role=JOBS)


def _of_resources(watch: Watch) -> Iterator[tuple[str, str, str]]:
    """Yield subresource, verb and reason of the requests for the resources of a watch."""
    kind = watch.gvk.kind
    for verb in ("get", *_LIST_WATCH):
        yield "", verb, f"the runner watches and reads {kind}"
    if watch.finalizer is not None:
        reason = f"the runner adds and removes the finalizer {watch.finalizer.name}"
        yield "", "patch", reason
    if watch.deselection is not None:
        name = watch.deselection.annotation
        yield "", "patch", f"the runner adds and removes the annotation {name}"
    if watch.prune is not None:
        yield "", "patch", f"the runner records the kinds of the objects of {kind}"
    if not watch.gvk.is_built_in:
        # It would be much for all ConfigMaps; users who need answers grant it.
        yield "", "patch", f"the runner answers `operator-runner reconcile` of {kind}"
    if watch.manage_status:
        yield "/status", "patch", f"the runner writes the conditions of {kind}"


def _of_watch(watch: Watch, kinds: KindTable, features: EnabledFeatures) -> Iterator[Requirement]:
    gvk, plural = watch.gvk, kinds.plural(watch.gvk)
    for suffix, verb, reason in _of_resources(watch):
        yield from _for(gvk.group, plural.name + suffix, (verb,), features.where(plural), reason)
    scopes = _scopes_of_events(plural, features)
    reason = f"the runner emits Events about {gvk.kind}"
    yield from _for("events.k8s.io", "events", ("create", "patch"), scopes, reason)
    if watch.conversions and features.webhook:
        name = f"{plural.name}.{gvk.group}"
        reason = f"the runner registers the conversion webhook of {gvk.kind}"
        yield from _for(*_CRDS, ("get", "patch"), (CLUSTER_WIDE,), reason, name=name, role=WEBHOOK)
    yield from _of_related(watch, kinds, features)
    yield from _of_jobs(watch, features.own_namespace)


def _scopes_of_events(plural: PluralName, features: EnabledFeatures) -> tuple[str, ...]:
    """Return where Events are written: those about cluster-scoped objects are in `default`.

    An operator of all namespaces needs no Role there, which kustomize's `namespace` would move.
    """
    if plural.namespaced or CLUSTER_WIDE in features.scopes:
        return features.scopes
    return ("default",)


def _of_related(watch: Watch, kinds: KindTable, features: EnabledFeatures) -> Iterator[Requirement]:
    """Yield the requirements of watches of objects that are not reconciled themselves."""
    for gvk, relation in (
        *((each.gvk, f"that {watch.gvk.kind} references") for each in watch.references),
        *((each.gvk, f"that trigger runs of {watch.gvk.kind}") for each in watch.triggers),
        *((each.gvk, f"whose fields {watch.gvk.kind} depends on") for each in watch.wake_on),
        *((gvk, f"that show why {watch.gvk.kind} is not ready") for gvk in _causes_of(watch)),
    ):
        plural = kinds.plural(gvk)
        reason = f"the runner watches objects {relation}"
        yield from _for(gvk.group, plural.name, _LIST_WATCH, features.where(plural), reason)


def _causes_of(watch: Watch) -> Sequence[GVK]:
    causes = GVK("", "v1", "Pod"), GVK("events.k8s.io", "v1", "Event")
    return causes if watch.judges_dependents else ()


def _of_process(features: EnabledFeatures) -> Iterator[Requirement]:
    if lease := features.lease:
        what, scopes = ("coordination.k8s.io", "leases"), (features.lease_scope,)
        flag, named = "--leader-elect", ("get", "update")
        yield from _for(*what, ("create",), scopes, flag, role=LEADER)
        yield from _for(*what, named, scopes, flag, name=lease, role=LEADER)
        if features.shards:
            # The names of the Leases of replicas are random.
            verbs = ("create", "get", *_LIST_WATCH, "update", "delete")
            reason = "--shards: each replica has a Lease"
            yield from _for(*what, verbs, scopes, reason, role=LEADER)
    if features.reviews:
        for what in (
            ("authentication.k8s.io", "tokenreviews"),
            ("authorization.k8s.io", "subjectaccessreviews"),
        ):
            yield from _for(*what, ("create",), (CLUSTER_WIDE,), features.reviewer, role=METRICS)
    if name := features.operator_condition:
        what, variable = ("operators.coreos.com", "operatorconditions"), "OPERATOR_CONDITION_NAME"
        yield from _for(*what, ("get", "patch"), (OWN_NAMESPACE,), variable, name=name)


def _for(
    group: str,
    resource: str,
    verbs: Iterable[str],
    scopes: Iterable[str],
    reason: str,
    *,
    name: str = "",
    role: str = MANAGER,
) -> Iterator[Requirement]:
    """Yield a requirement for each verb on a resource in each scope, all with the same reason."""
    for scope, verb in itertools.product(scopes, verbs):
        yield Requirement(AccessRule(group, resource, verb, scope, name), reason, role)


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
        if watch is not None and watch.prune and _creates_owned(permission, features):
            yield from _pruning(permission, watch, features)
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
    scopes = features.scopes if permission.namespace else (CLUSTER_WIDE,)
    reason = f"the runner watches objects that {_content(watch)} creates"
    yield from _for(permission.group, permission.resource, _LIST_WATCH, scopes, reason)


def _pruning(
    permission: Permission, watch: Watch, features: EnabledFeatures
) -> Iterator[Requirement]:
    """Yield the requirements of deleting objects of a kind that a role creates."""
    reason = f"the runner prunes objects that {_content(watch)} no longer writes"
    verbs, scopes = ("get", "list", "delete"), _scopes(permission, features)
    yield from _for(permission.group, permission.resource, verbs, scopes, reason)


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
    reason = f"the proxy reads the owner of objects that {_content(watch)} writes"
    scopes, name = _scopes(permission, features), permission.name
    yield from _for(permission.group, info.resource, verbs, scopes, reason, name=name)


def _is_followed(
    permission: Permission, watch: Watch, kinds: KindTable, features: EnabledFeatures
) -> bool:
    ignored = {(gvk.group, kinds.plural(gvk).name) for gvk in watch.blacklist}
    is_far = not permission.namespace and kinds.plural(watch.gvk).namespaced
    return (
        _creates_owned(permission, features)
        and (watch.watch_cluster_scoped_resources or not is_far)
        and watch.watch_dependent_resources
        and (permission.group, permission.resource) not in ignored
    )


def _creates_owned(permission: Permission, features: EnabledFeatures) -> bool:
    """Return whether a request creates an object that gets its owner."""
    info = RequestInfo(permission.group, "", permission.namespace, *_split(permission.resource))
    is_creation = permission.verb == "create" and bool(permission.resource)
    return features.inject_owner_ref and is_creation and can_be_owned(info)


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
    who = "a program outside of runs" if watch is None else _content(watch)
    return f"{who} requests it"


def _content(watch: Watch) -> str:
    path = watch.content.path
    return f"the role {path.name}" if watch.content.role else f"the playbook {path.name}"


@dataclass(frozen=True, slots=True)
class RequirementSources:
    """Sources of requirements: watches, recorded requests, and features of the runner.

    `recorded` is None without a recording.
    """

    watches: tuple[Watch, ...]
    recorded: tuple[Permission, ...] | None
    kinds: KindTable
    features: EnabledFeatures


def requirements_of(project: RequirementSources, *, names: bool) -> list[Requirement]:
    """Return the minimal requirements, sorted. Raises ConfigError for kinds without a CRD.

    `names` restricts rules to the names of recorded requests, where these are constant.
    """
    watches, kinds, features = project.watches, project.kinds, project.features
    of_roles = list(requirements_of_roles(project.recorded or (), watches, kinds, features))
    runner = requirements_of_runner(watches, kinds, features)
    return minimal([*runner, *(of_roles if names else without_names(of_roles))])


def warnings_of(project: RequirementSources) -> Sequence[str]:
    """Return warnings about the sources of the requirements."""
    warnings = [
        f"ignored requests recorded for {kind}: it is not in watches.yaml"
        for kind in unwatched_kinds(project.recorded or (), project.watches)
    ]
    if not project.recorded:
        warnings.append(
            "no recorded requests of roles: the result has only the runner's own rules; run the"
            " operator with --record-requests=config/rbac/requests.yaml first"
        )
    return warnings
