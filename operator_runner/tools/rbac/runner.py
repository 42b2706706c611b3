"""What the runner itself does with the API, as rights: each of its requests has its line here.

The requests are those of `controller/sources/` (list and watch), of `conversion/`, and of
`kube/`: `cluster` (the resource and its status), `events`, `lease`, `reviews` and
`operator_condition`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from operator_runner.core.model import Watch
from operator_runner.tools.rbac.kinds import KindTable, Plural
from operator_runner.tools.rbac.right import EVERYWHERE, OPERATORS, Need, Right

LEADER, METRICS, WEBHOOK = "leader-election-role", "metrics-auth-role", "webhook-role"
_FOLLOW = ("list", "watch")
_CRDS = ("apiextensions.k8s.io", "customresourcedefinitions")


@dataclass(frozen=True, slots=True)
class Duties:
    """What flags and environment let the runner do; scopes as in Right.

    `lease` and `operator_condition` are names, empty where there is none.
    """

    scopes: tuple[str, ...] = (EVERYWHERE,)
    """The namespaces that are watched."""
    lease: str = ""
    lease_scope: str = OPERATORS
    reviews: bool = False
    """Whether the API is asked who reads metrics."""
    operator_condition: str = ""
    webhook: bool = False
    """Whether the conversion webhook registers itself in the CRDs."""
    webhook_secret: tuple[str, str] | None = None
    """Scope and name of the Secret with the certificates of all replicas."""
    inject_owner_ref: bool = True

    def where(self, plural: Plural) -> tuple[str, ...]:
        """Return the scopes in which a kind is watched."""
        return self.scopes if plural.namespaced else (EVERYWHERE,)


def needs_of_runner(watches: Sequence[Watch], kinds: KindTable, duties: Duties) -> Iterator[Need]:
    """Yield what the runner needs, whatever the roles do."""
    for watch in watches:
        yield from _of_watch(watch, kinds, duties)
    yield from _of_process(duties)
    if duties.webhook_secret and any(watch.conversions for watch in watches):
        scope, name = duties.webhook_secret
        reason = "the replicas share the certificates of the conversion webhook"
        yield Need(Right("", "secrets", "create", scope), reason, WEBHOOK)
        for verb in ("get", "update"):
            yield Need(Right("", "secrets", verb, scope, name), reason, WEBHOOK)


def _of_watch(watch: Watch, kinds: KindTable, duties: Duties) -> Iterator[Need]:
    gvk, plural = watch.gvk, kinds.plural(watch.gvk)
    wanted = [("", verb, f"the runner watches and reads {gvk.kind}") for verb in ("get", *_FOLLOW)]
    if watch.finalizer is not None:
        reason = f"the runner holds deletion back by the finalizer {watch.finalizer.name}"
        wanted.append(("", "patch", reason))
    if watch.manage_status:
        wanted.append(("/status", "patch", f"the runner writes the conditions of {gvk.kind}"))
    for scope in duties.where(plural):
        for suffix, verb, reason in wanted:
            yield Need(Right(gvk.group, plural.name + suffix, verb, scope), reason)
    # Events about what is in no namespace are in `default`.
    for scope in duties.scopes if plural.namespaced else ("default",):
        for verb in ("create", "patch"):
            reason = f"the runner tells by Events how {gvk.kind} fares"
            yield Need(Right("events.k8s.io", "events", verb, scope), reason)
    if watch.conversions and duties.webhook:
        name = f"{plural.name}.{gvk.group}"
        for verb in ("get", "patch"):
            right = Right(*_CRDS, verb, EVERYWHERE, name)
            reason = f"the runner registers the conversion webhook of {gvk.kind}"
            yield Need(right, reason, WEBHOOK)
    yield from _of_references(watch, kinds, duties)


def _of_references(watch: Watch, kinds: KindTable, duties: Duties) -> Iterator[Need]:
    for reference in watch.references:
        named = kinds.plural(reference.gvk)
        reason = f"the runner watches what {watch.gvk.kind} refers to"
        for scope in duties.where(named):
            for verb in _FOLLOW:
                yield Need(Right(reference.gvk.group, named.name, verb, scope), reason)


def _of_process(duties: Duties) -> Iterator[Need]:
    if duties.lease:
        group, scope = "coordination.k8s.io", duties.lease_scope
        yield Need(Right(group, "leases", "create", scope), "--leader-elect", LEADER)
        for verb in ("get", "update"):
            right = Right(group, "leases", verb, scope, duties.lease)
            yield Need(right, "--leader-elect", LEADER)
    if duties.reviews:
        for group, resource in (
            ("authentication.k8s.io", "tokenreviews"),
            ("authorization.k8s.io", "subjectaccessreviews"),
        ):
            yield Need(Right(group, resource, "create"), "--metrics-require-rbac", METRICS)
    if name := duties.operator_condition:
        for verb in ("get", "patch"):
            right = Right("operators.coreos.com", "operatorconditions", verb, OPERATORS, name)
            yield Need(right, "OPERATOR_CONDITION_NAME")
