"""Read from operators which resources they watch, their last and next runs and their drift."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeAlias

from operator_runner.config.watches.selector import requirements_of
from operator_runner.core.errors import ApiError
from operator_runner.core.labels import match_labels
from operator_runner.core.model import GVK, Json, LabelSelector, LabelSelectorRequirement, ObjectRef
from operator_runner.telemetry.runs.received import check_drift, check_queue_entry
from operator_runner.telemetry.runs.records import causes_text
from operator_runner.tools.operator_api.client import OperatorClient
from operator_runner.tools.operator_api.discovery import Operators
from operator_runner.tools.operator_api.run_history import read_records, regards


@dataclass(frozen=True, slots=True)
class NextRun:
    """The place of a resource in a queue: a time, or the position among those that wait.

    `replica` is the operator with this queue, such as `Pod NAMESPACE/NAME`. `state` is Running,
    Queued or Delayed. `failures` are runs that failed in a row. `behind` is what a queued resource
    waits for.
    """

    due: datetime | None = None
    position: int | None = None
    cause: str = ""
    replica: str = ""
    state: str = ""
    failures: int = 0
    behind: str = ""


_Key: TypeAlias = tuple[str, str, str, str]
_SHOWN_RUNNING = 3


@dataclass(frozen=True)
class Queues:
    """The queues of the operators that answer; `reason` is why none does, else empty.

    `drifts` has the resources with drift, or for which that is unknown. `invalid` has the operators
    that gave no valid answer. `runs` has at least the last run of each resource.
    """

    items: tuple[Json, ...] = ()
    reason: str = ""
    invalid: tuple[str, ...] = ()
    drifts: tuple[Json, ...] = ()
    runs: tuple[Json, ...] = ()

    def next_run(self, ref: ObjectRef) -> NextRun | None:
        """Return when a resource runs next, None if no operator has queued it."""
        entry = self._items_by_key.get(_key_of(ref))
        return None if entry is None else self._next_run(entry)

    def drift(self, ref: ObjectRef) -> Json | None:
        """Return the drift of a resource, or None."""
        return self._drifts_by_key.get(_key_of(ref))

    def last_run(self, ref: ObjectRef, uid: str) -> Json | None:
        """Return the last run of a resource, one in progress included, or None."""
        run = self._runs_by_key.get(_key_of(ref))
        return None if run is None or not regards(run["resource"], uid) else run

    @cached_property
    def _items_by_key(self) -> dict[_Key, Json]:
        return {_key(each): each for each in reversed(self.items)}

    @cached_property
    def _drifts_by_key(self) -> dict[_Key, Json]:
        return {_key(each): each for each in reversed(self.drifts)}

    @cached_property
    def _runs_by_key(self) -> dict[_Key, Json]:
        return {_key(each): each for each in sorted(self.runs, key=lambda run: str(run["started"]))}

    def _next_run(self, entry: Json) -> NextRun:
        due = entry.get("due")
        return NextRun(
            None if due is None else datetime.fromisoformat(due),
            entry.get("position"),
            causes_text(entry),
            str(entry.get("operator") or ""),
            str(entry.get("state") or ""),
            entry.get("failures") or 0,
            self._behind(entry),
        )

    def _behind(self, entry: Json) -> str:
        """Return the runs and the number of queued resources that an entry waits for."""
        if entry.get("state") != "Queued":
            return ""
        operator = entry.get("operator")
        running = [
            f"{each['resource']['kind'].lower()}/{each['resource']['name']}"
            for each in self.items
            if each.get("state") == "Running" and each.get("operator") == operator
        ]
        more, before = len(running) - _SHOWN_RUNNING, (entry.get("position") or 1) - 1
        return ", ".join(
            [
                *running[:_SHOWN_RUNNING],
                *([f"{more} other runs"] if more > 0 else ()),
                *([f"{before} queued before it"] if before else ()),
            ]
        )


async def queues_of(operators: Operators) -> Queues:
    """Return the queues of the operators that answer. Does not raise ApiError."""
    items = await operators.collect("/queue", check_queue_entry)
    drifts = await drifts_of(operators)
    runs = await read_records(operators, {"last": "true", "limit": _MAX_RUNS})
    reason = "" if operators.clients else operators.reason
    return Queues(tuple(items), reason, tuple(operators.invalid), tuple(drifts), tuple(runs))


async def drifts_of(
    operators: Operators, query: Mapping[str, str] = MappingProxyType({})
) -> list[Json]:
    """Return the resources with drift; operators of earlier versions have none."""
    return await operators.collect("/drift", check_drift, dict(query), optional=True)


def _key(item: Json) -> _Key:
    """Return what identifies the resource of an item; operators may watch different versions."""
    resource = item["resource"]
    gvk = GVK.of(resource["apiVersion"], resource["kind"])
    return gvk.group, gvk.kind, resource.get("namespace", ""), resource["name"]


def _key_of(ref: ObjectRef) -> _Key:
    return ref.gvk.group, ref.gvk.kind, ref.namespace, ref.name


_MAX_RUNS = "5000"
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
