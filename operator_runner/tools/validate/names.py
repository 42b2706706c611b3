"""Names that are defined nowhere, and the nearest name that is. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from operator_runner.ansible.templating.name_hints import key_hint, suggestion, variable_hint
from operator_runner.reconcile.snake_case import to_snake
from operator_runner.tools.validate.expressions import ITEM, AttributeUse, Uses
from operator_runner.tools.validate.spec_fields import SpecFields

_MAGIC = frozenset(
    (
        *("environment", "group_names", "groups", "hostvars", "inventory_dir", "inventory_file"),
        *("inventory_hostname", "inventory_hostname_short", "item", "omit", "play_hosts"),
        *("playbook_dir", "role_name", "role_names", "role_path", "vars", "loop", "self"),
        *("super", "_task", "varargs", "kwargs", "caller", "packages", "services", "module_setup"),
        *("template_destpath", "template_fullpath", "template_host", "template_mtime"),
        *("template_path", "template_run_date", "template_uid"),
    )
)
"""Variables that Ansible or jinja2 define. Source: Special Variables in Ansible's documentation."""
_METHODS = frozenset(name for kind in (dict, list, str) for name in dir(kind))


@dataclass(frozen=True, slots=True)
class Definitions:
    """The variables that files of the project define."""

    defaults: frozenset[str] = frozenset()
    others: frozenset[str] = frozenset()
    guarded: frozenset[str] = frozenset()
    """Names that the project expects to be undefined at times."""
    is_open: bool = False
    """Whether tasks define variables whose names are not literal."""


def undefined(
    uses: Uses, definitions: Definitions, fields: SpecFields
) -> Iterator[tuple[int, str, str]]:
    """Yield line, name and message for each variable and key that is defined nowhere."""
    known = definitions.defaults | definitions.others | fields.others | set(fields.schemas)
    for use in uses.variables:
        if use.name in known or use.name in _MAGIC or use.name.startswith("ansible_"):
            continue
        hint = _hint(use.name, known, fields)
        is_expected = use.name in definitions.guarded or definitions.is_open or fields.is_open
        if is_expected and (not fields.is_snake_case or to_snake(use.name) not in known):
            continue
        yield use.line, use.name, f"'{use.name}' is undefined{hint}"
    for access in uses.accesses:
        if message := _unknown_key(access, definitions, fields):
            yield access.line, access.path[-1], message


def _hint(name: str, known: Collection[str], fields: SpecFields) -> str:
    hint = variable_hint(name, known) if fields.is_snake_case else suggestion(name, known)
    return hint or "; add it to the CRD, or a value to defaults/main.yml of the role"


def _unknown_key(access: AttributeUse, definitions: Definitions, fields: SpecFields) -> str | None:
    *owner, key = access.path
    if owner[0] in definitions.others or key in _METHODS or not fields.is_snake_case:
        return None
    keys = fields.keys_at(tuple(owner))
    if keys is None or key in keys or to_snake(key) not in keys:
        return None
    name = ".".join(owner).replace(f".{ITEM}", "[]")
    return f"'{name}' has no attribute '{key}'{key_hint(key, keys)}"
