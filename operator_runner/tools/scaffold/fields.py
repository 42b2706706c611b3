"""Fields of a spec, as `create api` and `create field` read them. Pure.

A field is `NAME:TYPE[!][=DEFAULT][,WORD=VALUE]...`. One list of fields gives the schema of the CRD,
the argument spec of the role and the sample. Types and words are those of OpenAPI.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from operator_runner.core.errors import ConfigError
from operator_runner.core.model import GVK, Json, ReservedNames, RunContent, Watch
from operator_runner.reconcile.reserved_fields import ReservationReason, reserved_fields
from operator_runner.reconcile.variables import to_snake

_NAME = re.compile(r"[a-z][A-Za-z0-9]{0,62}")
_LIST = "[]"
"""The end of a list's name, before the dot of a field of its items."""
_MARKS = re.compile(r"(?P<type>[^!=,]*)(?P<required>!?)(=(?P<default>.*))?", re.DOTALL)
_NUMBERS = frozenset({"integer", "number"})
_WORDS = {
    "enum": _NUMBERS | {"string"},
    "minimum": _NUMBERS,
    "maximum": _NUMBERS,
    "pattern": frozenset({"string"}),
    "example": frozenset({"string"}),
}
"""Words after a comma, and the types of values, or of the items of an array, that have them."""
_WORD = re.compile(rf",(?=(?:{'|'.join(_WORDS)})=)")
_MISSPELT_WORD = re.compile(r",([A-Za-z]+)=")
_NOT_RE2 = re.compile(r"\(\?(<?[=!]|>|P=)|\\[1-9]")
"""What patterns of Python have and those of the API server (RE2) have not."""
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
_TEXTS = ("example", "example.com", "1", "1Gi", "1.0.0", "https://example.com", "EXAMPLE")
"""Samples of texts; the first that matches the pattern of a field is taken."""
_INT64 = range(-(2**63), 2**63)
"""Range of an integer in the API server."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a spec: `items` is the type of an array's items, `default` None without a default.

    `limits` are words of OpenAPI for the value, `fields` the fields of an object; of an array both
    are of each item.
    """

    name: str
    type: str
    items: str = ""
    required: bool = False
    default: Any = None
    limits: Json = field(default_factory=dict)
    fields: tuple[Field, ...] = ()
    sample: str | None = None

    @property
    def variable(self) -> str:
        """The variable of the role."""
        return to_snake(self.name)

    @property
    def is_scalar(self) -> bool:
        """True if the value fits into a column."""
        return self.type not in {_ARRAY, "object"}

    @property
    def example(self) -> Any:
        """The value in the sample: the default, or one of the type."""
        if self.default is not None:
            return self.default
        return [self._one_example] if self.items else self._one_example

    @property
    def schema(self) -> Json:
        """The OpenAPI schema."""
        one = _schema_of(self.items or self.type) | self.limits
        if self.fields:
            one = object_schema(self.fields, is_item=bool(self.items))
        schema = {"type": self.type, "items": one} if self.items else one
        return schema | self._default

    @property
    def argument(self) -> Json:
        """The option in the argument spec of the role."""
        option: Json = {"type": _ANSIBLE_TYPES[self.type]}
        if self.items:
            option["elements"] = _ANSIBLE_TYPES[self.items]
        if self.required:
            option["required"] = True
        if "enum" in self.limits:
            option["choices"] = self.limits["enum"]
        option |= self._default
        return option | ({"options": arguments(self.fields)} if self.fields else {})

    @property
    def _default(self) -> Json:
        return {} if self.default is None else {"default": self.default}

    @property
    def _one_example(self) -> Any:
        """The value in the sample, of an array that of an item."""
        if self.fields:
            return examples(self.fields)
        if "enum" in self.limits:
            return self.limits["enum"][0]
        if self.sample is not None:
            return self.sample
        kind = self.items or self.type
        example = _EXAMPLES[kind]
        if kind == "string":
            return next((text for text in _TEXTS if not _excess(text, self.limits)), None)
        if kind in _NUMBERS:
            example = max(example, self.limits.get("minimum", example))
            example = min(example, self.limits.get("maximum", example))
        return example


def examples(fields: Iterable[Field]) -> Json:
    """Return the fields of a sample."""
    return {each.name: each.example for each in fields}


def arguments(fields: Iterable[Field]) -> Json:
    """Return the options of an argument spec."""
    return {each.variable: each.argument for each in fields}


def parse_fields(texts: Iterable[str]) -> tuple[Field, ...]:
    """Return the fields of `--field` flags. Raises ConfigError with all that is wrong."""
    fields: tuple[Field, ...] = ()
    declared: set[str] = set()
    problems: list[str] = []
    for text in texts:
        try:
            path, parsed = _parse(text)
            _check_new(path, declared)
            fields = _with(fields, path, parsed)
        except ConfigError as error:
            problems += [f"field {text}: {problem}" for problem in error.problems]
    if problems:
        raise ConfigError(*problems)
    return fields


def _check_new(path: Sequence[str], declared: set[str]) -> None:
    name = ".".join(path)
    if name in declared:
        raise ConfigError("duplicate field; remove one of them")
    declared.add(name)


def _with(fields: tuple[Field, ...], path: Sequence[str], leaf: Field) -> tuple[Field, ...]:
    """Return the fields with one more at a path, and with the objects and arrays on the way."""
    name, *rest = path
    is_list = name.endswith(_LIST)
    name = name.removesuffix(_LIST)
    at = next((at for at, each in enumerate(fields) if each.name == name), len(fields))
    known = fields[at] if at < len(fields) else None
    if known is None:
        check_variable(name, [each.name for each in fields])
    if not rest:
        new = leaf if known is None else replace(leaf, fields=known.fields)
        _check_parent(new, (known or leaf).type == _ARRAY)
        return (*fields[:at], new, *fields[at + 1 :])
    parent = known or Field(name, _ARRAY if is_list else "object", "object" if is_list else "")
    parent = replace(parent, fields=_with(parent.fields, rest, leaf))
    _check_parent(parent, is_list)
    return (*fields[:at], parent, *fields[at + 1 :])


def _check_parent(parent: Field, is_list: bool) -> None:
    """Refuse fields of a value that is neither an object nor, with `is_list`, a list of them."""
    if not parent.fields:
        return
    found = f"{parent.type}:{parent.items}".rstrip(":")
    if found != (f"{_ARRAY}:object" if is_list else "object"):
        raise ConfigError(
            f"{parent.name} is of type {found}; fields of an object are {parent.name}.NAME, those"
            f" of the items of an {_ARRAY}:object {parent.name}{_LIST}.NAME; correct name or type"
        )
    if parent.default is not None:
        raise ConfigError(
            f"{parent.name} has fields, so it cannot have a default; give its fields defaults"
        )


def check_keywords(
    fields: Sequence[Field], gvk: GVK, names: ReservedNames, *, declared: bool
) -> None:
    """Refuse fields that no role gets. Raises ConfigError.

    Keywords of playbooks are passed to a role that declares them, which is what `declared` means.
    """
    spec = {field.name: None for field in fields}
    watch = Watch(gvk, RunContent(role=Path(gvk.kind.lower())))
    problems = [
        f"field {found.name}: the operator would not pass the variable {found.variable}:"
        f" {found.use.value}; choose another name, such as"
        f" {gvk.kind[0].lower()}{gvk.kind[1:]}{found.name[0].upper()}{found.name[1:]}"
        for found in reserved_fields({"spec": spec}, watch, names)
        if not (declared and found.use is ReservationReason.KEYWORD)
    ]
    if problems:
        raise ConfigError(*problems)


def spec_schema(fields: Sequence[Field], description: str) -> Json:
    """Return the schema of a spec. Without fields it accepts any."""
    schema = object_schema(fields) if fields else _schema_of("object")
    return {"description": description} | schema


def object_schema(fields: Sequence[Field], *, is_item: bool = False) -> Json:
    """Return the schema of an object with fields; `is_item`: of an item of an array."""
    return with_presence({"type": "object"}, fields, is_item=is_item) | {
        "properties": {each.name: each.schema for each in fields}
    }


def with_presence(schema: Json, fields: Sequence[Field], *, is_item: bool) -> Json:
    """Return the schema of an object with the required ones of more fields, or a default.

    The API server sets defaults only in objects that exist.
    """
    required = [each.name for each in fields if each.required]
    if required := list(dict.fromkeys([*schema.get("required", ()), *required])):
        return {key: each for key, each in schema.items() if (key, each) != ("default", {})} | {
            "required": required
        }
    if is_item or "default" in schema or not any("default" in each.schema for each in fields):
        return schema
    return schema | {"default": {}}


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


def _parse(text: str) -> tuple[list[str], Field]:
    """Return the path of a field and the field itself."""
    name, colon, rest = text.partition(":")
    if not colon:
        raise ConfigError(f"the type is missing; write {name.partition('=')[0]}:string")
    path = name.split(".")
    _check_path(path)
    head, *words = _WORD.split(rest)
    _check_words((head, *(each for each in words if not each.startswith("pattern="))))
    marks = _MARKS.fullmatch(head)
    if marks is None:
        raise ConfigError(
            f"expected NAME:TYPE[!][=DEFAULT][,WORD=VALUE], with the words {', '.join(_WORDS)};"
            f" write {name}:string"
        )
    type_name, _, items = marks["type"].partition(":")
    _check_type(name, type_name, items)
    parsed = Field(path[-1], type_name, items, required=bool(marks["required"]))
    parsed = _limited(parsed, [each.partition("=")[::2] for each in words])
    if marks["default"] is not None:
        parsed = replace(parsed, default=_default_of(name, parsed, marks["default"]))
    if parsed.example in (None, [None]):
        raise ConfigError("the sample needs a value that matches pattern; add ,example=VALUE")
    return path, parsed


def _check_path(path: Sequence[str]) -> None:
    for at, part in enumerate(path):
        word = part if at == len(path) - 1 else part.removesuffix(_LIST)
        if word.endswith(_LIST):
            name = ".".join(path).removesuffix(_LIST)
            raise ConfigError(f"a list has a type of its own; write {name}:{_ARRAY}:string")
        if not _NAME.fullmatch(word):
            right = [*path[:at], _camel_case(word), *path[at + 1 :]]
            raise ConfigError(
                f"invalid name {word!r}: expected camelCase, letters and digits only;"
                f" write {'.'.join(right)}"
            )


def _check_words(parts: Iterable[str]) -> None:
    for found in (word for part in parts for word in _MISSPELT_WORD.findall(part)):
        if near := difflib.get_close_matches(found.lower(), _WORDS, 1, 0.7):
            raise ConfigError(f"unknown word {found!r}; write {near[0]}")


def _limited(parsed: Field, words: Sequence[tuple[str, str]]) -> Field:
    """Return a field with its words. Raises ConfigError if they exclude each other."""
    limits: Json = {}
    kind = parsed.items or parsed.type
    for word, text in words:
        if word in limits:
            raise ConfigError(f"{word} is given twice; remove one of them")
        if kind not in _WORDS[word]:
            fitting = ", ".join(each for each, kinds in _WORDS.items() if kind in kinds)
            raise ConfigError(
                f"{word} does not fit {kind}; remove it"
                + (f", or use one of {fitting}" if fitting else "")
            )
        texts = text.split(",") if word == "enum" else [text]
        values = [_value_of(kind, each) for each in texts]
        for value, each in zip(values, texts, strict=True):
            if not each or not _is_of(value, kind, ""):
                example = json.dumps(_EXAMPLES[kind]).strip('"')
                raise ConfigError(
                    f"invalid {word} {each!r}: expected {kind}; write {word}={example}"
                )
        limits[word] = list(dict.fromkeys(values)) if word == "enum" else values[0]
    if "pattern" in limits:
        _check_pattern(limits["pattern"])
    if limits.get("minimum", -math.inf) > limits.get("maximum", math.inf):
        raise ConfigError("minimum is above maximum; exchange them")
    sample = limits.pop("example", None)
    for each in (*limits.get("enum", ()), *([] if sample is None else [sample])):
        if excess := _excess(each, limits):
            raise ConfigError(f"invalid value {each!r}: {excess}; change one of them")
    return replace(parsed, limits=limits, sample=sample)


def _check_pattern(pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"invalid pattern {pattern!r}: {error}; correct it") from None
    if found := _NOT_RE2.search(pattern):
        raise ConfigError(
            f"invalid pattern {pattern!r}: the API server does not support {found[0]}; use RE2"
        )


def _excess(value: Any, limits: Json) -> str:
    """Return why a value is outside its limits, empty if it is not."""
    if "enum" in limits and value not in limits["enum"]:
        return f"not in enum {', '.join(map(str, limits['enum']))}"
    if "minimum" in limits and value < limits["minimum"]:
        return f"below minimum {limits['minimum']}"
    if "maximum" in limits and value > limits["maximum"]:
        return f"above maximum {limits['maximum']}"
    if "pattern" in limits and not re.search(limits["pattern"], value):
        return f"does not match pattern {limits['pattern']}"
    return ""


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


def _default_of(name: str, parsed: Field, text: str) -> Any:
    """Return a default as its type."""
    value = _value_of(parsed.type, text)
    type_name = f"{parsed.type}:{parsed.items}".rstrip(":")
    if parsed.required:
        raise ConfigError(
            "a required field (!) cannot have a default; remove one of them:"
            f" {name}:{type_name}={text}"
        )
    if not _is_of(value, parsed.type, parsed.items):
        quote = "" if parsed.is_scalar else "'"
        raise ConfigError(
            f"invalid default {text!r}: expected {type_name.replace(':', ' of ')}; write"
            f" {quote}{name}:{type_name}={json.dumps(parsed.example)}{quote}"
        )
    for each in value if parsed.items else (value,):
        if excess := _excess(each, parsed.limits):
            raise ConfigError(f"invalid default {text!r}: {excess}; change one of them")
    return value


def _value_of(type_name: str, text: str) -> Any:
    """Return text as a type, None if it is invalid: strings are taken as they are, others YAML."""
    if type_name == "string":
        return text
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        return None
    if type_name == "number" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
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


def check_variable(name: str, others: Iterable[str]) -> None:
    """Refuse a name whose variable is that of another field."""
    for other in others:
        if other != name and to_snake(other) == to_snake(name):
            raise ConfigError(
                f"variable {to_snake(name)} is also that of field {other}; rename one of them"
            )


def _camel_case(name: str) -> str:
    words = re.findall(r"[A-Za-z0-9]+", name)
    joined = "".join(word[0].upper() + word[1:] for word in words).lstrip("0123456789")[:63]
    return joined[:1].lower() + joined[1:] or "size"
