"""Requirements of the runner's own API requests: each request has its line here.

The requests are those of `controller/sources` (list and watch), of `conversion`, and in `kube` of
`cluster` (the resource and its status), `events`, `leader_election`, `membership`, `shard_leases`,
`reviews`, `operator_condition` and `run_archive`, and of `ansible.jobs.client`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from operator_runner.core.model import Watch
from operator_runner.core.settings import run_archive_names
from operator_runner.tools.rbac.access_rules import (
    CLUSTER_WIDE,
    OWN_NAMESPACE,
    AccessRule,
    Requirement,
)
from operator_runner.tools.rbac.kinds import KindTable, PluralName

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
    run_archives: bool = False
    """Whether runs are kept in ConfigMaps beside the Lease."""
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
    yield Requirement(AccessRule("", "secrets", "create", scope), reason, role)
    for verb in ("get", "update"):
        yield Requirement(AccessRule("", "secrets", verb, scope, name), reason, role)


def _of_jobs(watch: Watch, own_namespace: str) -> Iterator[Requirement]:
    """Yield the requirements of the Jobs of a watch; each run has a name of its own."""
    if watch.job is None:
        return
    namespace = watch.job.namespace
    scope = OWN_NAMESPACE if namespace in {"", own_namespace} else namespace
    for group, resource, verbs in _JOB_VERBS:
        for verb in verbs:
            reason = f"runs of {watch.gvk.kind} are Jobs"
            yield Requirement(AccessRule(group, resource, verb, scope), reason, JOBS)


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
    if not watch.gvk.is_built_in:
        # It would be much for all ConfigMaps; users who need answers grant it.
        yield "", "patch", f"the runner answers `operator-runner reconcile` of {kind}"
    if watch.manage_status:
        yield "/status", "patch", f"the runner writes the conditions of {kind}"


def _of_watch(watch: Watch, kinds: KindTable, features: EnabledFeatures) -> Iterator[Requirement]:
    gvk, plural = watch.gvk, kinds.plural(watch.gvk)
    for scope in features.where(plural):
        for suffix, verb, reason in _of_resources(watch):
            yield Requirement(AccessRule(gvk.group, plural.name + suffix, verb, scope), reason)
    for scope in _scopes_of_events(plural, features):
        for verb in ("create", "patch"):
            reason = f"the runner emits Events about {gvk.kind}"
            yield Requirement(AccessRule("events.k8s.io", "events", verb, scope), reason)
    if watch.conversions and features.webhook:
        name = f"{plural.name}.{gvk.group}"
        for verb in ("get", "patch"):
            rule = AccessRule(*_CRDS, verb, CLUSTER_WIDE, name)
            reason = f"the runner registers the conversion webhook of {gvk.kind}"
            yield Requirement(rule, reason, WEBHOOK)
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
    ):
        plural = kinds.plural(gvk)
        for scope in features.where(plural):
            for verb in _LIST_WATCH:
                rule = AccessRule(gvk.group, plural.name, verb, scope)
                yield Requirement(rule, f"the runner watches objects {relation}")


def _of_process(features: EnabledFeatures) -> Iterator[Requirement]:
    if features.lease:
        group, scope = "coordination.k8s.io", features.lease_scope
        yield Requirement(AccessRule(group, "leases", "create", scope), "--leader-elect", LEADER)
        for verb in ("get", "update"):
            rule = AccessRule(group, "leases", verb, scope, features.lease)
            yield Requirement(rule, "--leader-elect", LEADER)
    if features.lease and features.shards:
        # The names of the Leases of replicas are random.
        for verb in ("create", "get", *_LIST_WATCH, "update", "delete"):
            rule = AccessRule("coordination.k8s.io", "leases", verb, features.lease_scope)
            yield Requirement(rule, "--shards: each replica has a Lease", LEADER)
    yield from _of_run_archives(features)
    if features.reviews:
        for group, resource in (
            ("authentication.k8s.io", "tokenreviews"),
            ("authorization.k8s.io", "subjectaccessreviews"),
        ):
            yield Requirement(AccessRule(group, resource, "create"), features.reviewer, METRICS)
    if name := features.operator_condition:
        for verb in ("get", "patch"):
            rule = AccessRule(
                "operators.coreos.com", "operatorconditions", verb, OWN_NAMESPACE, name
            )
            yield Requirement(rule, "OPERATOR_CONDITION_NAME")


def _of_run_archives(features: EnabledFeatures) -> Iterator[Requirement]:
    if not (features.lease and features.run_archives):
        return
    scope, reason = features.lease_scope, "--keep-runs"
    yield Requirement(AccessRule("", "configmaps", "create", scope), reason, LEADER)
    for name in run_archive_names(features.lease):
        for verb in ("get", "patch"):
            yield Requirement(AccessRule("", "configmaps", verb, scope, name), reason, LEADER)
