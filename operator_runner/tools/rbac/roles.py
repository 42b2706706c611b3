"""What roles have asked for, and what follows from it, as rights. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from operator_runner.core.model import Ownership, Watch
from operator_runner.proxy.ownership import can_be_owned
from operator_runner.proxy.request_info import RequestInfo
from operator_runner.proxy.request_permissions import ANY, OWN, Permission
from operator_runner.tools.rbac.kinds import KindTable
from operator_runner.tools.rbac.right import EVERYWHERE, Need, Right
from operator_runner.tools.rbac.runner import Duties

_CHANGES = frozenset({"delete", "patch", "update"})


def needs_of_roles(
    recorded: Sequence[Permission], watches: Sequence[Watch], kinds: KindTable, duties: Duties
) -> Iterator[Need]:
    """Yield what the recorded requests need, and the watches of what roles create.

    Requests for kinds that are not watched any more are passed over, see `strangers`.
    """
    by_kind = {_name(watch): watch for watch in watches}
    for asked in recorded:
        watch = by_kind.get(asked.by)
        if watch is None and asked.by:
            continue
        for scope in _scopes(asked, duties):
            right = Right(asked.group, asked.resource, asked.verb, scope, asked.name, asked.path)
            yield Need(right, _who(watch))
        if watch is not None and _is_followed(asked, watch, kinds, duties):
            yield from _following(asked, watch, duties)
        if watch is not None and asked.resource and duties.inject_owner_ref:
            yield from _verifying(asked, watch, duties)


def strangers(recorded: Sequence[Permission], watches: Sequence[Watch]) -> list[str]:
    """Return the kinds that a recording has requests for, and that nobody watches any more."""
    names = {_name(watch) for watch in watches} | {""}
    return sorted({asked.by for asked in recorded} - names)


def _following(asked: Permission, watch: Watch, duties: Duties) -> Iterator[Need]:
    """Yield the watch of a kind that a role creates."""
    for scope in duties.scopes if asked.namespace else (EVERYWHERE,):
        for verb in ("list", "watch"):
            reason = f"the runner watches what {_content(watch)} makes"
            yield Need(Right(asked.group, asked.resource, verb, scope), reason)


def _verifying(asked: Permission, watch: Watch, duties: Duties) -> Iterator[Need]:
    """Yield what the proxy needs to get the owner of an object that a role writes."""
    info = RequestInfo(asked.group, "", asked.namespace, *_split(asked.resource))
    if not can_be_owned(replace(info, subresource="")):
        return
    verbs: tuple[str, ...] = ()
    if watch.ownership is Ownership.IGNORE:
        verbs = ("get",) if asked.verb == "update" and not info.subresource else ()
    elif asked.verb == "deletecollection":
        verbs = ("list",)
    elif asked.verb in _CHANGES or (asked.verb == "create" and info.subresource):
        adopts = watch.ownership is Ownership.ADOPT and asked.verb in {"patch", "update"}
        verbs = ("get", "patch") if adopts else ("get",)
    for scope, verb in itertools.product(_scopes(asked, duties), verbs):
        reason = f"the proxy gets the owner of what {_content(watch)} writes"
        yield Need(Right(asked.group, info.resource, verb, scope, asked.name), reason)


def _is_followed(asked: Permission, watch: Watch, kinds: KindTable, duties: Duties) -> bool:
    info = RequestInfo(asked.group, "", asked.namespace, *_split(asked.resource))
    if asked.verb != "create" or not asked.resource or not can_be_owned(info):
        return False
    ignored = {(gvk.group, kinds.plural(gvk).name) for gvk in watch.blacklist}
    is_far = not asked.namespace and kinds.plural(watch.gvk).namespaced
    return (
        duties.inject_owner_ref
        and (watch.watch_cluster_scoped_resources or not is_far)
        and watch.watch_dependent_resources
        and (asked.group, asked.resource) not in ignored
    )


def _split(resource: str) -> tuple[str, str, str]:
    """Return resource, name and subresource, as RequestInfo has them."""
    plural, _, subresource = resource.partition("/")
    return plural, "", subresource


def _scopes(asked: Permission, duties: Duties) -> tuple[str, ...]:
    fixed: Mapping[str, tuple[str, ...]] = {OWN: duties.scopes, ANY: (EVERYWHERE,)}
    return fixed.get(asked.namespace, (asked.namespace,))


def _name(watch: Watch) -> str:
    gvk = watch.gvk
    return f"{gvk.kind}.{gvk.group}" if gvk.group else gvk.kind


def _who(watch: Watch | None) -> str:
    return (
        "a program beside the runs asks for it"
        if watch is None
        else f"{_content(watch)} asks for it"
    )


def _content(watch: Watch) -> str:
    path = watch.content.path
    return f"the role {path.name}" if watch.content.role else f"the playbook {path.name}"
