"""The fields of a kind's spec as variables of its role, from the CRD in the project. Pure.

Argument specs of the role must be valid and agree with the CRD. Names that are defined nowhere are
reported with the nearest name that is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible.module_utils.common.parameters import DEFAULT_TYPE_VALIDATORS

from operator_runner.ansible.templating.hints import key_hint, suggestion, variable_hint
from operator_runner.core.model import Json, Watch
from operator_runner.reconcile.variables import META, SCHEDULE_TIME, object_name, to_snake
from operator_runner.tools.validate.expressions import ITEM, AttributeUse, Path, Uses
from operator_runner.tools.validate.findings import PlacedMessage
from operator_runner.tools.validate.kinds import schemas
from operator_runner.tools.validate.values import listed, mapping

_OPEN = "x-kubernetes-preserve-unknown-fields"


@dataclass(frozen=True, slots=True)
class SpecFields:
    """The variables that resources of some kinds set."""

    schemas: Mapping[str, Json] = field(default_factory=dict)
    """Schema of each field by the name of its variable."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Name of the variable by the name of the field."""
    others: frozenset[str] = frozenset()
    """Variables that are not fields: vars of the watch, the resource itself."""
    is_open: bool = False
    """Whether resources may have further fields: no CRD is in the project, or it allows any."""
    is_snake_case: bool = True
    has_facts: bool = True
    """Whether runs gather facts of the host."""

    def __or__(self, other: SpecFields) -> SpecFields:
        """Return the variables of the kinds of both."""
        return SpecFields(
            {**self.schemas, **other.schemas},
            {**self.fields, **other.fields},
            self.others | other.others,
            self.is_open or other.is_open,
            self.is_snake_case and other.is_snake_case,
            self.has_facts and other.has_facts,
        )

    def inside(self, path: Path) -> SpecFields:
        """Return the fields of the object at this path; none, and open, if it is unknown."""
        schema: Any = self.schemas.get(path[0])
        for name in path[1:]:
            schema = mapping(schema).get("items") if name == ITEM else self._named(schema).get(name)
        return SpecFields(
            self._named(schema),
            is_open=_is_open(mapping(schema)),
            is_snake_case=self.is_snake_case,
        )

    def _named(self, schema: Any) -> dict[str, Json]:
        properties = mapping(mapping(schema).get("properties"))
        return {self._name(key): mapping(each) for key, each in properties.items()}

    def _name(self, key: str) -> str:
        return to_snake(str(key)) if self.is_snake_case else str(key)


def spec_fields(watch: Watch, objects: Iterable[Json]) -> SpecFields:
    """Return the variables of a watch, whose CRD is among the objects, if the project has it."""
    name = object_name(watch.gvk)
    others = {META, name, f"{name}_spec", *watch.vars}
    if watch.schedule is not None:
        others.add(SCHEDULE_TIME)
    for cleanup in (watch.finalizer, watch.deselection):
        if cleanup is not None:
            others |= set(cleanup.vars)
    crd = dict(schemas(objects)).get(watch.gvk)
    schema = None if crd is None else mapping(mapping(crd.get("properties")).get("spec"))
    properties = {
        str(key): each for key, each in mapping(mapping(schema).get("properties")).items()
    }
    variables = {key: to_snake(key) if watch.snake_case_parameters else key for key in properties}
    return SpecFields(
        {variables[key]: each for key, each in properties.items() if isinstance(each, dict)},
        variables,
        frozenset(others),
        schema is None or _is_open(schema),
        watch.snake_case_parameters,
        # A playbook is a play of its own.
        watch.gather_facts or watch.content.role is None,
    )


def _is_open(schema: Json) -> bool:
    return bool(schema.get(_OPEN) or schema.get("additionalProperties")) or not schema.get(
        "properties"
    )


_VALUES = {"string": "1M", "integer": 1, "number": 1.0, "boolean": True, "array": [], "object": {}}
"""A value of each type of a CRD that Ansible converts to as many types of options as it can."""
_TYPES = frozenset(DEFAULT_TYPE_VALIDATORS)
_KEYS = frozenset(
    (
        *("description", "version_added", "type", "default", "elements", "choices", "options"),
        *("required", "aliases", "apply_defaults", "no_log", "fallback", "removed_in_version"),
        *("removed_at_date", "removed_from_collection", "deprecated_aliases", "mutually_exclusive"),
        *("required_together", "required_one_of", "required_if", "required_by", "attributes"),
    )
)


def invalid(data: Any) -> Iterator[PlacedMessage]:
    """Yield what is wrong with the content of meta/argument_specs.yml."""
    specs = data.get("argument_specs") if isinstance(data, dict) else None
    if not isinstance(specs, dict):
        yield data, "the file must have the map `argument_specs`", True
        return
    for entry, spec in specs.items():
        if not isinstance(spec, dict):
            yield entry, f"the spec of {entry} must be a map", True
        else:
            yield from _invalid_options(spec.get("options") or {}, entry)


def _invalid_options(options: Any, owner: Any) -> Iterator[PlacedMessage]:
    if not isinstance(options, dict):
        yield owner, f"the options of {owner} must be a map", True
        return
    has_texts = any(isinstance(name, str) for name in options)
    for name, option in options.items():
        if not isinstance(name, str):
            message = f"option {name} is not a text: YAML reads on, off, yes and no as booleans"
            yield option, f"{message}; quote the name", has_texts
            continue
        if not isinstance(option, dict):
            yield name, f"option {name} must be a map such as `type: str`", True
            continue
        for key in ("type", "elements"):
            kind = option.get(key)
            if isinstance(kind, str) and kind not in _TYPES:
                yield kind, f"option {name}: unknown {key} '{kind}'{_nearest(kind, _TYPES)}", True
        for key in option:
            if key not in _KEYS:
                yield key, f"option {name}: unknown key '{key}'{_nearest(key, _KEYS)}", False
        yield from _invalid_options(option.get("options") or {}, name)


def disagreements(
    data: Any, fields: SpecFields, definitions: Definitions
) -> Iterator[PlacedMessage]:
    """Yield where the options of `main` and the fields of the CRD differ."""
    main = (data.get("argument_specs") or {}).get("main") if isinstance(data, dict) else None
    options = main.get("options") if isinstance(main, dict) else None
    if not isinstance(options, dict):
        return
    known = {*fields.others, *definitions.defaults, *definitions.others}
    yield from _option_problems(options, fields, fields.is_open or definitions.is_open, known)
    missing = sorted(set(fields.schemas) - set(options))
    if missing and options:
        message = f"no option for {', '.join(missing)} of the CRD"
        yield main, f"{message}; add it, so that its type is checked", False


def _option_problems(
    options: Json, fields: SpecFields, is_open: bool, known: Collection[str] = ()
) -> Iterator[PlacedMessage]:
    for name, option in options.items():
        if not isinstance(option, dict):
            continue
        is_missing = option.get("required") is True and name not in known and not is_open
        if name in fields.schemas:
            yield from _type_problems(name, option, fields.schemas[name])
            if name not in known:  # tasks may pass objects of their own to a role
                yield from _nested_problems(name, option, fields)
        elif fields.is_snake_case and to_snake(str(name)) in fields.schemas:
            hint = f"spec fields are in snake case here: {to_snake(str(name))}"
            yield name, f"option {name} is never set: {hint}", is_missing
        elif is_missing:
            hint = "add the field to the CRD, or remove `required`"
            yield name, f"option {name} is required, and the CRD has no such field; {hint}", True


def _nested_problems(name: str, option: Json, owner: SpecFields) -> Iterator[PlacedMessage]:
    """Yield where the options of an object, or of those of a list, differ from its fields."""
    options, kind = option.get("options"), (option.get("type"), option.get("elements"))
    if not isinstance(options, dict) or (kind[0] != "dict" and kind != ("list", "dict")):
        return
    fields = owner.inside((name,) if kind[0] == "dict" else (name, ITEM))
    yield from _option_problems(options, fields, fields.is_open)
    aliases = {alias for each in options.values() for alias in listed(mapping(each).get("aliases"))}
    if missing := ", ".join(sorted(set(fields.schemas) - set(options) - aliases)):
        message = f"option {name} has no option for {missing} of the CRD"
        yield option, f"{message}; add it, because Ansible refuses other keys than options", True


def _type_problems(
    name: Any, option: Mapping[str, Any], schema: Mapping[str, Any]
) -> Iterator[PlacedMessage]:
    field_type, kind = str(schema.get("type")), option.get("type", "str")
    convert = DEFAULT_TYPE_VALIDATORS.get(kind) if isinstance(kind, str) else None
    if schema.get("x-kubernetes-int-or-string") or field_type not in _VALUES or convert is None:
        return
    value, is_error = _VALUES[field_type], False
    try:
        if isinstance(convert(value), dict | list) == isinstance(value, dict | list):
            return
    except (TypeError, ValueError):
        is_error = field_type != "string"  # other texts may be converted
    message = f"option {name} has type {kind}, the field of the CRD is {field_type}"
    yield option.get("type", name), f"{message}; give both the same type", is_error


def _nearest(name: Any, known: Collection[str]) -> str:
    return suggestion(str(name), known, f"; expected one of {', '.join(sorted(known))}")


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
    declared: frozenset[str] = frozenset()
    """Options of argument specs."""
    guarded: frozenset[str] = frozenset()
    """Names that the project expects to be undefined at times."""
    is_open: bool = False
    """Whether tasks define variables whose names are not literal."""

    def known(self, fields: SpecFields) -> frozenset[str]:
        """Return all names that files or fields define."""
        found = self.defaults | self.others | self.declared
        return found | fields.others | frozenset(fields.schemas)


def undefined(
    uses: Uses, definitions: Definitions, fields: SpecFields
) -> Iterator[tuple[int, str, str, bool]]:
    """Yield line, name, message and whether it is an error for names that nothing defines."""
    known = definitions.known(fields)
    for use in uses.variables:
        if use.name in known or use.name in _MAGIC or use.name.startswith("ansible_"):
            continue
        hint = _hint(use.name, known, fields)
        is_expected = use.name in definitions.guarded or definitions.is_open
        is_certain = fields.is_snake_case and to_snake(use.name) in known
        if (is_expected or fields.is_open) and not is_certain:
            continue
        yield use.line, use.name, f"'{use.name}' is undefined{hint}", not is_expected
    for access in uses.accesses:
        if found := _unknown_key(access, definitions, fields):
            yield access.line, access.path[-1], *found


def _hint(name: str, known: Collection[str], fields: SpecFields) -> str:
    hint = variable_hint(name, known) if fields.is_snake_case else suggestion(name, known)
    return hint or "; add it to the CRD, or a value to defaults/main.yml of the role"


def _unknown_key(
    access: AttributeUse, definitions: Definitions, fields: SpecFields
) -> tuple[str, bool] | None:
    *owner, key = access.path
    if owner[0] in definitions.others or key in _METHODS or not fields.is_snake_case:
        return None
    found = fields.inside(tuple(owner))
    keys = found.schemas
    if found.is_open or key in keys:
        return None
    is_expected = owner[0] in definitions.guarded | definitions.defaults or definitions.is_open
    if is_expected and to_snake(key) not in keys:
        return None
    name = ".".join(owner).replace(f".{ITEM}", "[]")
    hint = key_hint(key, keys) or f"; the CRD has {', '.join(sorted(keys))}"
    return f"'{name}' has no attribute '{key}'{hint}", not is_expected
