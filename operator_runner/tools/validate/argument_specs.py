"""Argument specs of a role: whether they are valid, and agree with the CRD. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from operator_runner.ansible.templating.name_hints import suggestion
from operator_runner.reconcile.snake_case import to_snake
from operator_runner.tools.validate.spec_fields import SpecFields

_TYPES_OF = {
    "string": {"str", "path", "raw", "bytes", "bits", "jsonarg", "json"},
    "integer": {"int", "float", "raw", "str"},
    "number": {"float", "raw", "str"},
    "boolean": {"bool", "raw", "str"},
    "array": {"list", "raw"},
    "object": {"dict", "raw"},
}
"""Types of options that accept a value of a CRD's type."""
_TYPES = frozenset().union(*_TYPES_OF.values())
_KEYS = frozenset(
    (
        *("description", "version_added", "type", "default", "elements", "choices", "options"),
        *("required", "aliases", "apply_defaults", "no_log", "fallback", "removed_in_version"),
        *("removed_at_date", "removed_from_collection", "deprecated_aliases", "mutually_exclusive"),
        *("required_together", "required_one_of", "required_if", "required_by", "attributes"),
    )
)

Problem = tuple[Any, str, bool]
"""The value of the file that has the place; the message; whether it is an error."""


def invalid(data: Any) -> Iterator[Problem]:
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


def _invalid_options(options: Any, owner: Any) -> Iterator[Problem]:
    if not isinstance(options, dict):
        yield owner, f"the options of {owner} must be a map", True
        return
    for name, option in options.items():
        if not isinstance(option, dict):
            yield name, f"option {name} must be a map such as `type: str`", True
            continue
        for key in ("type", "elements"):
            kind = option.get(key)
            if isinstance(kind, str) and kind not in _TYPES:
                yield kind, f"option {name}: unknown {key} '{kind}'{_nearest(kind, _TYPES)}", True
        for key in option:
            if key not in _KEYS:
                yield key, f"option {name}: unknown key '{key}'{_nearest(key, _KEYS)}", True
        yield from _invalid_options(option.get("options") or {}, name)


def disagreements(data: Any, fields: SpecFields, defined: Collection[str]) -> Iterator[Problem]:
    """Yield where the options of `main` and the fields of the CRD differ."""
    main = (data.get("argument_specs") or {}).get("main") if isinstance(data, dict) else None
    options = main.get("options") if isinstance(main, dict) else None
    if not isinstance(options, dict):
        return
    known = {*fields.schemas, *fields.others, *defined}
    for name, option in options.items():
        if not isinstance(option, dict):
            continue
        if name in fields.schemas:
            yield from _type_problems(name, option, fields.schemas[name])
        elif fields.is_snake_case and to_snake(str(name)) in fields.schemas:
            hint = f"spec fields are in snake case here: {to_snake(str(name))}"
            yield name, f"option {name} is never set: {hint}", True
        elif option.get("required") is True and name not in known and not fields.is_open:
            hint = "add the field to the CRD, or remove `required`"
            yield name, f"option {name} is required, and the CRD has no such field; {hint}", True
    missing = sorted(set(fields.schemas) - set(options))
    if missing and options:
        message = f"no option for {', '.join(missing)} of the CRD"
        yield main, f"{message}; add it, so that its type is checked", False


def _type_problems(
    name: Any, option: Mapping[str, Any], schema: Mapping[str, Any]
) -> Iterator[Problem]:
    expected, kind = _TYPES_OF.get(str(schema.get("type"))), option.get("type", "str")
    if schema.get("x-kubernetes-int-or-string") or expected is None:
        return
    if isinstance(kind, str) and kind in _TYPES and kind not in expected:
        message = f"option {name} has type {kind}, the field of the CRD is {schema['type']}"
        yield option.get("type", name), f"{message}; give both the same type", True


def _nearest(name: Any, known: Collection[str]) -> str:
    return suggestion(str(name), known, f"; expected one of {', '.join(sorted(known))}")
