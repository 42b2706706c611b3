"""Read from operators which resources they watch, their next runs and their drift."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any

from operator_runner.config.watches.selector import requirements_of
from operator_runner.core.errors import ApiError
from operator_runner.core.labels import match_labels
from operator_runner.core.model import (
    GVK,
    Json,
    LabelSelector,
    LabelSelectorRequirement,
    ObjectRef,
)
from operator_runner.telemetry.runs.received import check_drift, check_queue_entry
from operator_runner.telemetry.runs.record import causes_text, matches
from operator_runner.tools.operator_api.client import OperatorClient
from operator_runner.tools.operator_api.discovery import Operators


@dataclass(frozen=True, slots=True)
class NextRun:
    """The place of a resource in a queue: a time, or the position among those that wait.

    `replica` is the operator with this queue, such as `Pod NAMESPACE/NAME`. `state` is Running,
    Queued or Delayed. `failures` are runs that failed in a row.
    """

    due: datetime | None = None
    position: int | None = None
    cause: str = ""
    replica: str = ""
    state: str = ""
    failures: int = 0


@dataclass(frozen=True, slots=True)
class Queues:
    """The queues of the operators that answer; `reason` is why none does, else empty.

    `drifts` has the resources with drift, or for which that is unknown. `invalid` has the operators
    that gave no valid answer.
    """

    items: tuple[Json, ...] = ()
    reason: str = ""
    invalid: tuple[str, ...] = ()
    drifts: tuple[Json, ...] = ()

    def next_run(self, ref: ObjectRef) -> NextRun | None:
        """Return when a resource runs next, None if no operator has queued it."""
        return next((next_run_of(each) for each in self.items if _is_about(each, ref)), None)

    def drift(self, ref: ObjectRef) -> Json | None:
        """Return the drift of a resource, or None."""
        return next((each for each in self.drifts if _is_about(each, ref)), None)


async def queues_of(operators: Operators) -> Queues:
    """Return the queues of the operators that answer. Does not raise ApiError."""
    items = await operators.collect("/queue", check_queue_entry)
    drifts = await drifts_of(operators)
    reason = "" if operators.clients else operators.reason
    return Queues(tuple(items), reason, tuple(operators.invalid), tuple(drifts))


async def drifts_of(
    operators: Operators, query: Mapping[str, str] = MappingProxyType({})
) -> list[Json]:
    """Return the resources with drift; operators of earlier versions have none."""
    return await operators.collect("/drift", check_drift, dict(query), optional=True)


def _is_about(item: Json, ref: ObjectRef) -> bool:
    kind = {"group": ref.gvk.group, "kind": ref.gvk.kind}
    return matches(item["resource"], {**kind, "namespace": ref.namespace, "name": ref.name})


def next_run_of(item: Json) -> NextRun:
    """Return the place of an entry of a queue, as `check_queue_entry` returns it."""
    due = item.get("due")
    time = None if due is None else datetime.fromisoformat(due)
    return NextRun(
        time,
        item.get("position"),
        causes_text(item),
        str(item.get("operator") or ""),
        str(item.get("state") or ""),
        item.get("failures") or 0,
    )


_MAX_KINDS = 1000
"""Of one operator; others can create Pods that answer."""


@dataclass(frozen=True, slots=True)
class WatchedKind:
    """The resources of a kind that an operator watches.

    The kind has no version, since each resource is served in all of them. `namespaces` are all if
    empty. `when` is an expression; it is not evaluated here, because others can create Pods that
    answer.
    """

    group: str
    kind: str
    namespaces: frozenset[str] = frozenset()
    requirements: tuple[LabelSelectorRequirement, ...] = ()
    when: str = ""

    def has(self, ref: ObjectRef, body: Json) -> bool:
        """Return whether namespace and labels of a resource of the kind are watched."""
        labels = body["metadata"].get("labels") or {}
        return self.has_namespace(ref) and match_labels(
            LabelSelector({}, self.requirements), labels
        )

    def has_namespace(self, ref: ObjectRef) -> bool:
        """Return whether the namespace of a resource is watched."""
        return not (ref.namespace and self.namespaces) or ref.namespace in self.namespaces


def exclusion(ref: ObjectRef, body: Json, watched: Iterable[WatchedKind]) -> str:
    """Return why operators may not reconcile a resource; empty if one does, or none has its kind.

    `watched` is what the operators that answer watch.
    """
    kind = (ref.gvk.group, ref.gvk.kind)
    of_kind = [each for each in watched if (each.group, each.kind) == kind]
    in_namespace = [each for each in of_kind if each.has_namespace(ref)]
    selecting = [each for each in in_namespace if each.has(ref, body)]
    if of_kind and not in_namespace:
        return f"no operator that answers watches namespace {ref.namespace}"
    if in_namespace and not selecting:
        return "no watch selects its labels"
    expressions = {each.when for each in selecting}
    if not expressions or "" in expressions:
        return ""
    return f"reconciled only if `when` is true: {'; or '.join(sorted(expressions))}"


def other_namespaces(
    namespace: str, kinds: Collection[GVK], watched: Iterable[WatchedKind]
) -> list[str]:
    """Return the namespaces in which operators watch these kinds, if `namespace` is not one.

    Empty if one watches all namespaces.
    """
    names = {(each.group, each.kind) for each in kinds}
    scopes = [each.namespaces for each in watched if (each.group, each.kind) in names]
    if any(not scope or namespace in scope for scope in scopes):
        return []
    return sorted(frozenset().union(*scopes))


async def watched_kinds(operators: Operators) -> frozenset[WatchedKind]:
    """Return what the operators that answer watch; drop those that fail, as `collect` does."""
    found = await asyncio.gather(*(_read(operators, each) for each in list(operators.clients)))
    return frozenset(each for kinds in found for each in kinds)


async def _read(operators: Operators, client: OperatorClient) -> list[WatchedKind]:
    try:
        return parse(await client.get(""))
    except ApiError as error:
        operators.drop(client, error)
        return []


def parse(identity: Json) -> list[WatchedKind]:
    """Return the kinds in the document at /api/v1, without those that are malformed."""
    kinds, namespaces = identity.get("kinds"), identity.get("namespaces")
    chosen = frozenset(map(str, namespaces)) if isinstance(namespaces, list) else frozenset()
    found = []
    for each in kinds[:_MAX_KINDS] if isinstance(kinds, list) else ():
        try:
            found.append(_kind(each, chosen))
        except ValueError:
            continue
    return found


def _kind(value: Any, namespaces: frozenset[str]) -> WatchedKind:
    fields = value if isinstance(value, dict) else {}
    gvk = GVK.of(str(fields.get("apiVersion")), str(fields.get("kind")))
    requirements = requirements_of(fields.get("selector") or {})
    return WatchedKind(gvk.group, gvk.kind, namespaces, requirements, str(fields.get("when") or ""))
