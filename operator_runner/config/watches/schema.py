"""The JSON schema of watches.yaml, for editors. Pure.

It checks the same as the loader, except for referenced files, limits of numbers, duplicates and
JMESPath. Files for which the loader only logs warnings are valid here too: an editor that supports
`deprecationMessage` shows keys that are unknown, or in another case than in the documentation, as
warnings. It does not check the value of such a key.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from operator_runner.config.watches.definitions import NAME as DEFINED_NAME
from operator_runner.config.watches.execution import (
    NAMED_OBJECTS,
    POD_TEMPLATE,
)
from operator_runner.config.watches.keys import (
    ENTRY_KEYS,
    NAME_PATTERN,
    PROTECTED_KINDS,
    STANDARD_FIELDS,
    Key,
    Shape,
)
from operator_runner.config.watches.selector import (
    LABEL_VALUE_PATTERN,
    OPERATORS,
    QUALIFIED_NAME_PATTERN,
    WITH_VALUES,
)
from operator_runner.config.watches.status_keys import CONDITION_TYPE_PATTERN
from operator_runner.core.durations import DURATION_PATTERN
from operator_runner.core.model import Drift, Json
from operator_runner.core.object_names import LABEL_PATTERN

# Before the file is YAML the environment is put in, so any value may be a variable for now.
_VARIABLE = {"type": "string", "pattern": r"\$"}
# Booleans of YAML 1.1, which the loader reads, are texts for editors, which read YAML 1.2.
_OLD_BOOLEAN = {
    "type": "string",
    "pattern": "^(?:y|Y|yes|Yes|YES|n|N|no|No|NO|on|On|ON|off|Off|OFF)$",
    "deprecationMessage": "works, but is written true or false",
}
_OFF = (None, False, "n", "N", "no", "No", "NO", "off", "Off", "OFF")
_ON: Json = {"not": {"enum": list(_OFF)}}
_TEXT: Json = {"type": ["string", "number", "boolean", "null"]}
_FILLED: Json = {"type": ["string", "number", "boolean"], "minLength": 1}


def schema() -> Json:
    """Return the schema, in draft 7, which editors support."""
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "watches.yaml of operator-runner",
        "type": ["array", "null"],
        "items": _entry(),
    }


def _entry() -> Json:
    entry = _map(ENTRY_KEYS)
    properties = entry["properties"]
    # A timeout of zero, or below, would end every run.
    properties["timeout"]["not"] = {"type": "string", "pattern": r"^-|^[^1-9$]*$"}
    properties["topLevelFields"] = _top_level_fields(properties["topLevelFields"])
    for name in ("finalizer", "deselection"):
        properties[name] |= _cleanup(properties[name])
    properties["references"]["items"] |= _reference()
    # An absent schedule may be written as null.
    properties["schedule"]["type"] = ["object", "null"]
    trigger = properties["triggers"]["items"]
    trigger |= _trigger()
    for selector in (properties["selector"], trigger["properties"]["selector"]):
        expression = selector["properties"]["matchExpressions"]["items"]
        expression |= _requirement(expression)
    entry["allOf"] = [*entry["allOf"], _chosen_if_deselected(), _no_preview_of_jobs()]
    chosen = properties["wakeOn"]["items"]["properties"]["fields"]
    chosen |= {"type": "array", "minItems": 1, "items": _FILLED}
    properties["define"] |= {
        "propertyNames": _pattern(DEFINED_NAME),
        "additionalProperties": _FILLED,
    }
    _close_status(properties["status"]["properties"])
    kinds = properties["prune"]["anyOf"][-1]["properties"]["kinds"]
    kinds["items"] = {"anyOf": [{"enum": list(PROTECTED_KINDS)}, _VARIABLE]}
    _close_job(properties["execution"]["properties"]["job"]["properties"])
    return entry | {"anyOf": [_has("role"), _has("playbook")]}


def _top_level_fields(read: Json) -> Json:
    return read | {"items": read["items"] | {"not": {"enum": list(STANDARD_FIELDS)}}}


def _reference() -> Json:
    ways = ("name", "selector")
    return {"anyOf": [_has(way) for way in ways], "not": _both(*ways)}


def _trigger() -> Json:
    return {"not": _both("name", "matching")}


def _both(*names: str) -> Json:
    return {"required": [*names], "properties": dict.fromkeys(names, _FILLED)}


def _close_status(properties: Json) -> None:
    properties["fields"] |= {
        "propertyNames": _pattern(NAME_PATTERN),
        "additionalProperties": _FILLED,
    }
    condition = properties["conditions"]["items"]
    condition["properties"]["type"] |= _pattern(CONDITION_TYPE_PATTERN)
    failed = {"required": ["failed"], "properties": {"failed": _ON}}
    ways = [_both("status"), _both("ready"), failed]
    condition["properties"]["ready"] |= {"enum": [None, "", "dependents"]}
    condition |= {
        "anyOf": [_has("status"), _has("ready"), _or_in_another_case("failed", failed)],
        "not": {"anyOf": [{"allOf": [*pair]} for pair in itertools.combinations(ways, 2)]},
    }


def _close_job(properties: Json) -> None:
    properties["namespace"] |= {"pattern": rf"^(?:{LABEL_PATTERN})?$|\$"}
    properties["ttl"]["not"] = {"type": "string", "pattern": r"^-.*[1-9]"}
    for name, required in NAMED_OBJECTS.items():
        filled = {each: {"not": {"enum": [None, "", 0, False]}} for each in required}
        properties[name]["items"] = {
            "type": "object",
            "required": list(required),
            "properties": filled,
        }
    properties["template"] |= {**_shaped(POD_TEMPLATE), "additionalProperties": False}


def _shaped(shape: Mapping[str, Any]) -> Json:
    """Return the schema of a map with these maps, and lists of maps."""
    properties: Json = {}
    for name, inner in shape.items():
        if isinstance(inner, list):
            items = {"type": "object", **_shaped(inner[0])}
            properties[name] = {"type": ["array", "null"], "items": items}
        else:
            properties[name] = {"type": ["object", "null"], **_shaped(inner)}
    return {"properties": properties}


def _no_preview_of_jobs() -> Json:
    job = {"required": ["job"], "properties": {"job": {"not": {"type": "null"}}}}
    fields = {"drift": {"const": Drift.WARN.value}, "execution": {"type": "object", **job}}
    return {"not": {"required": list(fields), "properties": fields}}


def _chosen_if_deselected() -> Json:
    """Return the constraint that `deselection` needs `selector` or `when`."""

    def given(name: str) -> Json:
        return {"required": [name], "properties": {name: {"not": {"type": "null"}}}}

    choices = [_or_in_another_case(name, given(name)) for name in ("selector", "when")]
    return {"if": given("deselection"), "then": {"anyOf": choices}}


def _cleanup(read: Json) -> Json:
    """Return the further constraints of `finalizer` and of `deselection`."""
    read["properties"]["name"] |= _pattern(QUALIFIED_NAME_PATTERN)
    some = {"type": ["object", "string"], "minProperties": 1}
    has_vars = _or_in_another_case("vars", {"required": ["vars"], "properties": {"vars": some}})
    # An absent one may be written as null.
    contents = [_has("role"), _has("playbook"), has_vars]
    return {"type": ["object", "null"], "anyOf": contents}


def _requirement(read: Json) -> Json:
    properties = read["properties"]
    properties["key"] |= _pattern(QUALIFIED_NAME_PATTERN)
    properties["operator"] = {
        "description": properties["operator"]["description"],
        "anyOf": [{"enum": list(OPERATORS)}, _VARIABLE],
    }
    compares = {"required": ["operator"], "properties": {"operator": {"enum": list(WITH_VALUES)}}}
    bare = [operator for operator in OPERATORS if operator not in WITH_VALUES]
    exists = {"required": ["operator"], "properties": {"operator": {"enum": bare}}}
    wants = {"type": ["array", "string"], "minItems": 1}
    has_values = {"required": ["values"], "properties": {"values": wants}}
    return {
        "allOf": [
            *read["allOf"],
            {"if": compares, "then": _or_in_another_case("values", has_values)},
            {"if": exists, "then": {"properties": {"values": {"maxItems": 0}}}},
        ]
    }


def _has(name: str) -> Json:
    return _or_in_another_case(name, {"required": [name], "properties": {name: _FILLED}})


def _map(keys: Sequence[Key]) -> Json:
    required = [
        _or_in_another_case(key.name, {"required": [key.name]}) for key in keys if key.required
    ]
    return {
        # null is a map without keys.
        "type": "object" if required else ["object", "null"],
        "properties": {key.name: _described(key) for key in keys},
        "patternProperties": {_another_case(key.name): _warned(key.name) for key in keys},
        "additionalProperties": {"deprecationMessage": "unknown key, ignored"},
    } | ({"allOf": required} if required else {})


def _another_case(name: str) -> str:
    """Return a pattern of the key in any case but its own."""
    letters = "".join(f"[{letter.upper()}{letter.lower()}]" for letter in name)
    return f"^(?!{name}$){letters}$"


def _warned(name: str) -> Json:
    return {"deprecationMessage": f"works, but is written {name}"}


def _or_in_another_case(name: str, right: Json) -> Json:
    """Return a constraint, extended to maps that have the key in another case."""
    # Not all keys are something else.
    has = {"not": {"propertyNames": {"not": {"pattern": _another_case(name)}}}}
    return {"anyOf": [right, has]}


def _described(key: Key) -> Json:
    described: Json = {"description": key.about}
    if key.default is not None:
        described["default"] = key.default
    return described | _value(key) | (_FILLED if key.required else {})


def _value(key: Key) -> Json:
    match key.shape:
        case Shape.LABELS:
            names, values = _pattern(QUALIFIED_NAME_PATTERN), _TEXT | _pattern(LABEL_VALUE_PATTERN)
            return {
                "type": ["object", "null"],
                "propertyNames": names,
                "additionalProperties": values,
            }
        case Shape.TEXTS:
            return {"type": ["array", "null"], "items": _TEXT | _pattern(LABEL_VALUE_PATTERN)}
        case Shape.MAP:
            return _map(key.keys)
        case Shape.MAPS:
            return {"type": ["array", "null"], "items": _map(key.keys)}
        case Shape.FLAG_OR_MAP | Shape.CHOICE:
            is_choice = key.shape is Shape.CHOICE
            words: list[Json] = [{"enum": [*key.choices, None]}, _VARIABLE]
            flags = [*_SIMPLE[Shape.FLAG]["anyOf"], _map(key.keys)]
            return {"anyOf": words if is_choice else flags}
        case _:
            return _SIMPLE[key.shape]


def _pattern(expression: str) -> Json:
    return {"pattern": rf"^(?:{expression})$|\$"}


_SIMPLE: dict[Shape, Json] = {
    Shape.TEXT: _TEXT,
    Shape.FLAG: {"anyOf": [{"type": ["boolean", "null"]}, _VARIABLE, _OLD_BOOLEAN]},
    Shape.NUMBER: {"anyOf": [{"type": ["integer", "null"]}, _VARIABLE]},
    Shape.DURATION: {"type": ["string", "null"], **_pattern(DURATION_PATTERN)},
    Shape.NAMES: {
        "type": ["array", "null"],
        "items": {"type": ["string", "boolean"], **_pattern(NAME_PATTERN)},
    },
    Shape.EXPRESSION_LIST: {"type": ["array", "null"], "items": _TEXT},
    Shape.EXPRESSIONS: {"type": ["object", "null"], "additionalProperties": _TEXT},
    Shape.OBJECTS: {"type": ["array", "null"], "items": {"type": "object"}},
    Shape.ANYTHING: {"type": ["object", "string", "null"], "pattern": _VARIABLE["pattern"]},
}
