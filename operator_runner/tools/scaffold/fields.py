"""Fields of a spec, as `create api --field NAME:TYPE[!][=DEFAULT]` names them. Pure.

One list of fields gives the schema of the CRD, the argument spec and defaults of the role, the
sample and the tables of the documentation. Types are those of OpenAPI.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from operator_runner.core.errors import ConfigError
from operator_runner.core.model import GVK, Json, ReservedNames, RunContent, Watch
from operator_runner.reconcile.reserved_fields import ReservationReason, reserved_fields
from operator_runner.reconcile.snake_case import to_snake

_NAME = re.compile(r"[a-z][A-Za-z0-9]{0,62}")
_MARKS = re.compile(r"(?P<type>[^!=]*)(?P<required>!?)(=(?P<default>.*))?", re.DOTALL)
_ARRAY = "array"
_ANSIBLE_TYPES = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "object": "dict",
    _ARRAY: "list",
}
"""Types of fields, and those of Ansible's argument specs."""
_ITEM_TYPES = tuple(name for name in _ANSIBLE_TYPES if name != _ARRAY)
_OTHER_NAMES = {
    "str": "string",
    "text": "string",
    "int": "integer",
    "int32": "integer",
    "int64": "integer",
    "float": "number",
    "double": "number",
    "bool": "boolean",
    "dict": "object",
    "map": "object",
    "list": "array:string",
    _ARRAY: "array:string",
}
"""Names of types elsewhere, and what to write instead."""
_EXAMPLES: dict[str, Any] = {
    "string": "example",
    "integer": 1,
    "number": 1.5,
    "boolean": True,
    "object": {},
}
_INT64 = range(-(2**63), 2**63)
"""Range of an integer in the API server."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a spec: `items` is the type of an array's items, `default` None without a default.

    `is_keyword` is whether playbooks have a keyword of the variable's name.
    """

    name: str
    type: str
    items: str = ""
    required: bool = False
    default: Any = None
    is_keyword: bool = False

    @property
    def variable(self) -> str:
        """The variable of the role."""
        return to_snake(self.name)

    @property
    def is_scalar(self) -> bool:
        """True if the value fits into a column."""
        return self.type not in {_ARRAY, "object"}

    @property
    def type_text(self) -> str:
        """The type for readers: `array of string`."""
        return f"{self.type} of {self.items}" if self.items else self.type

    @property
    def example(self) -> Any:
        """The value in the sample: the default, or one of the type."""
        if self.default is not None:
            return self.default
        return [_EXAMPLES[self.items]] if self.items else _EXAMPLES[self.type]

    @property
    def schema(self) -> Json:
        """The OpenAPI schema."""
        schema = _schema_of(self.type)
        if self.items:
            schema["items"] = _schema_of(self.items)
        return schema | self._default

    @property
    def argument(self) -> Json:
        """The option in the argument spec of the role."""
        option: Json = {"type": _ANSIBLE_TYPES[self.type]}
        if self.items:
            option["elements"] = _ANSIBLE_TYPES[self.items]
        if self.required:
            option["required"] = True
        return option | self._default

    @property
    def default_text(self) -> str:
        """The default as JSON, empty without a default."""
        return "" if self.default is None else json.dumps(self.default, ensure_ascii=False)

    @property
    def _default(self) -> Json:
        return {} if self.default is None else {"default": self.default}


def parse_fields(texts: Iterable[str]) -> tuple[Field, ...]:
    """Return the fields of `--field` flags. Raises ConfigError with all that is wrong."""
    fields: list[Field] = []
    problems: list[str] = []
    for text in texts:
        try:
            field = _parse(text)
            _check_unique(field, fields)
            fields.append(field)
        except ConfigError as error:
            problems += [f"--field {text}: {problem}" for problem in error.problems]
    if problems:
        raise ConfigError(*problems)
    return tuple(fields)


def mark_keywords(
    fields: Sequence[Field], gvk: GVK, names: ReservedNames, *, declared: bool
) -> tuple[Field, ...]:
    """Return the fields with `is_keyword` set. Raises ConfigError for those that no role gets.

    Keywords of playbooks are passed to a role that declares them, which is what `declared` means.
    """
    spec = {field.name: None for field in fields}
    watch = Watch(gvk, RunContent(role=Path(gvk.kind.lower())))
    reserved = reserved_fields({"spec": spec}, watch, names)
    problems = [
        f"--field {found.name}: the operator would not pass the variable {found.variable}:"
        f" {found.use.value}; choose another name, such as"
        f" {gvk.kind[0].lower()}{gvk.kind[1:]}{found.name[0].upper()}{found.name[1:]}"
        for found in reserved
        if not (declared and found.use is ReservationReason.KEYWORD)
    ]
    if problems:
        raise ConfigError(*problems)
    keywords = {found.name for found in reserved}
    return tuple(replace(field, is_keyword=field.name in keywords) for field in fields)


def spec_schema(fields: Sequence[Field], description: str) -> Json:
    """Return the schema of a spec. Without fields it accepts any."""
    schema: Json = {"description": description, "type": "object"}
    if not fields:
        return schema | {"x-kubernetes-preserve-unknown-fields": True}
    required = [field.name for field in fields if field.required]
    if required:
        schema["required"] = required
    elif any(field.default is not None for field in fields):
        # The API server sets defaults only in objects that exist.
        schema["default"] = {}
    return schema | {"properties": {field.name: field.schema for field in fields}}


def columns(fields: Sequence[Field]) -> list[Json]:
    """Return the columns of `kubectl get`: one for each field with a single value."""
    return [
        {
            "name": field.name[0].upper() + field.name[1:],
            "type": field.type,
            "jsonPath": f".spec.{field.name}",
        }
        for field in fields
        if field.is_scalar
    ]


def _schema_of(type_name: str) -> Json:
    free = {"x-kubernetes-preserve-unknown-fields": True} if type_name == "object" else {}
    return {"type": type_name} | free


def _parse(text: str) -> Field:
    name, colon, rest = text.partition(":")
    if not colon:
        raise ConfigError(f"the type is missing; write {name.partition('=')[0]}:string")
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"invalid name {name!r}: expected camelCase, letters and digits only;"
            f" write {_camel_case(name)}"
        )
    found = _MARKS.fullmatch(rest)
    if found is None:
        raise ConfigError(f"expected NAME:TYPE[!][=DEFAULT]; write {name}:string")
    type_name, _, items = found["type"].partition(":")
    _check_type(name, type_name, items)
    field = Field(name, type_name, items, required=bool(found["required"]))
    if found["default"] is None:
        return field
    if field.required:
        raise ConfigError(
            "a required field (!) cannot have a default; remove one of them:"
            f" {name}:{found['type']}={found['default']}"
        )
    return replace(field, default=_default_of(field, found["default"]))


def _check_type(name: str, type_name: str, items: str) -> None:
    if type_name == _ARRAY and items in _ITEM_TYPES:
        return
    if type_name == _ARRAY and items:
        hint = _nearest(items, _ITEM_TYPES).removeprefix(f"{_ARRAY}:")
        raise ConfigError(f"unknown type of items {items!r}; write {name}:array:{hint}")
    if type_name in _ITEM_TYPES and not items:
        return
    if type_name in _ITEM_TYPES:
        raise ConfigError(f"only an array has items; write {name}:{type_name}")
    if type_name == _ARRAY:
        raise ConfigError(
            f"the type of the items is missing; write {name}:{_OTHER_NAMES[_ARRAY]}, or"
            f" another of {', '.join(_ITEM_TYPES)}"
        )
    hint = _nearest(type_name, _ANSIBLE_TYPES)
    raise ConfigError(
        f"unknown type {type_name!r}: expected one of {', '.join(_ANSIBLE_TYPES)};"
        f" write {name}:{_OTHER_NAMES.get(hint, hint)}"
    )


def _nearest(word: str, known: Iterable[str]) -> str:
    if word.lower() in _OTHER_NAMES:
        return _OTHER_NAMES[word.lower()]
    return next(iter(difflib.get_close_matches(word.lower(), [*known], 1)), "string")


def _default_of(field: Field, text: str) -> Any:
    """Return a default as its type; text is taken as it is, the rest is YAML."""
    if field.type == "string":
        return text
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        value = None
    if field.type == "number" and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not _is_of(value, field.type, field.items):
        example = json.dumps(field.example)
        quote = "" if field.is_scalar else "'"
        raise ConfigError(
            f"invalid default {text!r}: expected {field.type_text}; write"
            f" {quote}{field.name}:{field.type}{':' if field.items else ''}{field.items}"
            f"={example}{quote}"
        )
    return value


def _is_of(value: Any, type_name: str, items: str) -> bool:
    match type_name:
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool) and value in _INT64
        case "number":
            return isinstance(value, float) and math.isfinite(value)
        case "boolean":
            return isinstance(value, bool)
        case "object":
            return isinstance(value, dict) and _is_json(value)
        case "array":
            return isinstance(value, list) and all(_is_of(item, items, "") for item in value)
        case _:
            return isinstance(value, str)


def _is_json(value: Any) -> bool:
    """Return whether YAML gave a value that JSON has too; dates for example it has not."""
    match value:
        case dict():
            return all(isinstance(key, str) and _is_json(item) for key, item in value.items())
        case list():
            return all(map(_is_json, value))
        case float():
            return math.isfinite(value)
        case _:
            return value is None or isinstance(value, (str, int))


def _check_unique(field: Field, others: Iterable[Field]) -> None:
    for other in others:
        if other.name == field.name:
            raise ConfigError("duplicate field; remove one of them")
        if other.variable == field.variable:
            raise ConfigError(
                f"variable {field.variable} is also that of field {other.name}; rename one of them"
            )


def _camel_case(name: str) -> str:
    words = re.findall(r"[A-Za-z0-9]+", name)
    joined = "".join(word[0].upper() + word[1:] for word in words).lstrip("0123456789")[:63]
    return joined[:1].lower() + joined[1:] or "size"
