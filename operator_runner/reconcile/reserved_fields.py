"""Fields of a spec that become no variables, because of what they are called. Pure.

With `ansibleConnection: ssh` and `ansibleSshCommonArgs: -o ProxyCommand=...` in a spec a user who
may only write resources would run commands in the operator.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from operator_runner.core.model import Json, ReservedNames, Watch
from operator_runner.reconcile.variables import META, fields_of_spec, object_name

_PREFIXES = ("ansible_", "_ansible_", "__ansible_")
"""Names that begin so are Ansible's: interpreters, facts, settings of plugins, type tags."""
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-]+")
_NAMED = 20
"""Fields that a message names; of more it gives the number."""
_LONGEST_NAME = 80


class Use(enum.Enum):
    """What a variable of such a name would do; the value completes a message."""

    ANSIBLE = "Ansible acts on variables of these names"
    KEYWORD = "these names are words of Ansible, and the role does not declare them as variables"
    OPERATOR = "the operator sets variables of these names"


@dataclass(frozen=True, slots=True)
class ReservedField:
    """A field of a spec whose variable would be taken for something else."""

    name: str
    variable: str
    use: Use

    @property
    def path(self) -> str:
        """Where it is in the resource: `spec.ansibleConnection`."""
        name = self.name if len(self.name) <= _LONGEST_NAME else f"{self.name[:_LONGEST_NAME]}..."
        return f"spec.{name}" if _PLAIN_NAME.fullmatch(name) else f"spec[{json.dumps(name)}]"


def reserved_fields(body: Json, watch: Watch, names: ReservedNames) -> tuple[ReservedField, ...]:
    """Return the fields with reserved names that the watch does not allow.

    Those of `Use.KEYWORD` are variables like others if the role has declared them, see `dropped`.
    """
    own = {META, object_name(watch.gvk), f"{object_name(watch.gvk)}_spec"}
    found = []
    for field, variable in fields_of_spec(body, watch):
        called = {field, variable}
        if variable in own:
            found.append(ReservedField(field, variable, Use.OPERATOR))
        elif called & watch.allow_vars:
            continue
        elif called & names.acted_on or any(name.startswith(_PREFIXES) for name in called):
            found.append(ReservedField(field, variable, Use.ANSIBLE))
        elif called & names.keywords:
            found.append(ReservedField(field, variable, Use.KEYWORD))
    return tuple(found)


def dropped(
    fields: Sequence[ReservedField], declared: Collection[str]
) -> tuple[ReservedField, ...]:
    """Return the fields that become no variables; `declared` are the variables of the role."""
    return tuple(
        field for field in fields if field.use is not Use.KEYWORD or field.variable not in declared
    )


def cure(fields: Sequence[ReservedField]) -> str:
    """Return what to do about fields that are dropped."""
    if all(field.use is Use.OPERATOR for field in fields):
        return "rename the fields"
    return "rename the fields, or allow their names with allowVars in watches.yaml"


def paths(fields: Sequence[ReservedField]) -> list[str]:
    """Return where the fields are, of many only the first."""
    more = len(fields) - _NAMED
    return [field.path for field in fields[:_NAMED]] + ([f"{more} more"] if more > 0 else [])


def note(fields: Sequence[ReservedField]) -> str:
    """Describe fields that are dropped to the user of the resource."""
    parts = (
        f"{', '.join(paths(of_use))} ({use.value})"
        for use in Use
        if (of_use := [field for field in fields if field.use is use])
    )
    return f"Not passed to the role: {'; '.join(parts)}; {cure(fields)}"
