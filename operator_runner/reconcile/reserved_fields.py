"""Find the fields of a resource that must not become variables, and report them once.

With `ansibleConnection: ssh` and `ansibleSshCommonArgs: -o ProxyCommand=...` in a spec, a user who
can only write resources could run commands in the operator.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import structlog

from operator_runner.core.model import GVK, EventSpec, Json, ReservedNames, RunContent, Watch
from operator_runner.reconcile.observer import Observer, ResourceRun
from operator_runner.reconcile.protocols import ClusterClient, VariableNames
from operator_runner.reconcile.variables import META, fields_of_variables, object_name

_log = structlog.get_logger(__name__)

_PREFIXES = ("ansible_", "_ansible_", "__ansible_")
"""Prefixes reserved for Ansible: interpreters, facts, settings of plugins, type tags."""
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-]+")
_MAX_LISTED_FIELDS = 20
"""Fields listed in a message; of the rest it has the number."""
_MAX_NAME_CHARACTERS = 80


class ReservationReason(enum.Enum):
    """The reason why a name is reserved; the value is part of a message."""

    ANSIBLE = "Ansible acts on variables of these names"
    KEYWORD = "Ansible has keywords of these names, and the role does not declare them as variables"
    OPERATOR = "the operator sets variables of these names"


@dataclass(frozen=True, slots=True)
class ReservedField:
    """A field whose variable has a reserved name; `parent` is empty for a top-level field."""

    name: str
    variable: str
    use: ReservationReason
    parent: str = "spec"

    @property
    def path(self) -> str:
        """Path in the resource: `spec.ansibleConnection`."""
        name = self.name
        if len(name) > _MAX_NAME_CHARACTERS:
            name = f"{name[:_MAX_NAME_CHARACTERS]}..."
        if not self.parent:
            return name
        plain = _PLAIN_NAME.fullmatch(name)
        return f"{self.parent}.{name}" if plain else f"{self.parent}[{json.dumps(name)}]"


def reserved_fields(body: Json, watch: Watch, names: ReservedNames) -> tuple[ReservedField, ...]:
    """Return the fields with reserved names that `watch.allow_vars` does not allow.

    Fields of `ReservationReason.KEYWORD` are passed to a role that declares them, see `dropped`.
    """
    own = {META, object_name(watch.gvk), f"{object_name(watch.gvk)}_spec"}
    found = []
    for parent, field, variable in fields_of_variables(body, watch):
        used_names = {field, variable}
        if variable in own:
            found.append(ReservedField(field, variable, ReservationReason.OPERATOR, parent))
        elif used_names & watch.allow_vars:
            continue
        elif used_names & names.acted_on or any(name.startswith(_PREFIXES) for name in used_names):
            found.append(ReservedField(field, variable, ReservationReason.ANSIBLE, parent))
        elif used_names & names.keywords:
            found.append(ReservedField(field, variable, ReservationReason.KEYWORD, parent))
    return tuple(found)


def dropped(
    fields: Sequence[ReservedField], declared: Collection[str]
) -> tuple[ReservedField, ...]:
    """Return the fields that are not passed; `declared` are the variables of the role."""
    return tuple(
        field
        for field in fields
        if field.use is not ReservationReason.KEYWORD or field.variable not in declared
    )


async def dropped_fields(
    body: Json, watch: Watch, content: RunContent, names: VariableNames
) -> tuple[ReservedField, ...]:
    """Return the fields that are not passed to a role or playbook. Raises RunError."""
    fields = reserved_fields(body, watch, await names.reserved())
    if any(field.use is ReservationReason.KEYWORD for field in fields):
        fields = dropped(fields, await names.declared(content))
    return fields


def names_of(fields: Sequence[ReservedField]) -> frozenset[str]:
    """Return the names of fields."""
    return frozenset(field.name for field in fields)


def reported(fields: Sequence[ReservedField], gvk: GVK) -> tuple[ReservedField, ...]:
    """Return the dropped fields that are reported.

    Fields of a built-in kind, such as `spec.strategy` of a Deployment, cannot be renamed: a keyword
    among them is not reported, because the role does not use it.
    """
    return tuple(
        field
        for field in fields
        if field.use is not ReservationReason.KEYWORD or not gvk.is_built_in
    )


def hint(fields: Sequence[ReservedField]) -> str:
    """Return how a user gets dropped fields passed."""
    if all(field.use is ReservationReason.OPERATOR for field in fields):
        return "rename the fields"
    return "rename the fields, or allow their names with allowVars in watches.yaml"


def paths(fields: Sequence[ReservedField]) -> list[str]:
    """Return the paths of the fields, at most 20 and the number of the rest."""
    more = len(fields) - _MAX_LISTED_FIELDS
    listed = [field.path for field in fields[:_MAX_LISTED_FIELDS]]
    return [*listed, f"{more} more"] if more > 0 else listed


def note(fields: Sequence[ReservedField]) -> str:
    """Return the note of the Event about dropped fields."""
    parts = (
        f"{', '.join(paths(of_use))} ({use.value})"
        for use in ReservationReason
        if (of_use := [field for field in fields if field.use is use])
    )
    return f"Not passed to the role: {'; '.join(parts)}; {hint(fields)}"


@dataclass(slots=True)
class _DroppedSlot:
    reported: tuple[int, frozenset[str]] | None = None
    """Generation and names for which fields were last reported; the data of a kind without
    generations may get others."""


class DroppedFieldsObserver(Observer):
    """Keeps fields with reserved names from the role; reports them once per generation."""

    def __init__(self, names: VariableNames, cluster: ClusterClient) -> None:
        """`names` has those that are reserved; Events are emitted to `cluster`."""
        self._names, self._cluster = names, cluster

    async def begin(self, run: ResourceRun) -> None:
        """See `Observer`."""
        content = run.watch.content_for(cleanup=run.is_deletion)
        fields = await dropped_fields(run.body, run.watch, content, self._names)
        run.excluded = names_of(fields)
        found, slot = (run.generation, run.excluded), run.state.slot(_DroppedSlot)
        to_report = reported(fields, run.ref.gvk)
        if to_report and slot.reported != found:
            _log.warning(
                "Fields of the resource are not passed to the role",
                fields=paths(to_report),
                hint=hint(to_report),
            )
            event = EventSpec("ReservedFieldNames", note(to_report), warning=True)
            await self._cluster.emit(run.body, event)
            slot.reported = found
