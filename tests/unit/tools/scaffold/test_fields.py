"""The flag `--field`, and the files that it affects."""

from __future__ import annotations

from typing import Any

import pytest

from operator_runner.core.errors import ConfigError
from operator_runner.core.model import GVK, ReservedNames
from operator_runner.tools.scaffold.fields import (
    Field,
    columns,
    mark_keywords,
    parse_fields,
    spec_schema,
)

CACHE = GVK("cache", "v1", "Memcached")
NAMES = ReservedNames(frozenset({"environment"}), frozenset({"tags"}))
FREE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("image:string", Field("image", "string")),
        ("owner:string!", Field("owner", "string", required=True)),
        ("size:integer=3", Field("size", "integer", default=3)),
        ("size:integer=-9223372036854775808", Field("size", "integer", default=-(2**63))),
        ("ratio:number=2", Field("ratio", "number", default=2.0)),
        ("debug:boolean=false", Field("debug", "boolean", default=False)),
        ("motto:string=", Field("motto", "string", default="")),
        ("motto:string=a: b=c!", Field("motto", "string", default="a: b=c!")),
        ("version:string=1.10", Field("version", "string", default="1.10")),
        ("hosts:array:string!", Field("hosts", "array", "string", required=True)),
        ("hosts:array:string=[a, b]", Field("hosts", "array", "string", default=["a", "b"])),
        ("ports:array:integer=[]", Field("ports", "array", "integer", default=[])),
        ("limits:object={cpu: '1'}", Field("limits", "object", default={"cpu": "1"})),
    ],
)
def test_a_field_has_name_type_and_default(text: str, field: Field) -> None:
    """A field is NAME:TYPE, then `!` if it is required or `=` and its default."""
    assert parse_fields([text]) == (field,)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("size", "the type is missing; write size:string"),
        ("site_title:string", "invalid name 'site_title': .*write siteTitle"),
        ("Size:string", "write size"),
        ("1:string", "write size"),
        ("size:int", "unknown type 'int': .*write size:integer"),
        ("size:intger", "unknown type 'intger': .*write size:integer"),
        ("size:", "unknown type '': .*write size:string"),
        ("hosts:list", "unknown type 'list': .*write hosts:array:string"),
        ("hosts:array", "the type of the items is missing; write hosts:array:string"),
        ("hosts:array:str", "unknown type of items 'str'; write hosts:array:string"),
        ("hosts:array:array", "unknown type of items 'array'; write hosts:array:string"),
        ("size:integer:string", "only an array has items; write size:integer"),
        ("size:integer!=3", "a required field .* cannot have a default.*: size:integer=3"),
        ("size:integer!3", "expected NAME:TYPE"),
        ("size:integer=three", "invalid default 'three': expected integer; write size:integer=1"),
        ("size:integer=3.5", "expected integer"),
        ("size:integer=true", "expected integer"),
        ("size:integer=9223372036854775808", "expected integer"),
        ("ratio:number=.inf", "expected number; write ratio:number=1.5"),
        ("ratio:number=", "expected number"),
        ("debug:boolean=1", "expected boolean; write debug:boolean=true"),
        ("hosts:array:string=a", r"""write 'hosts:array:string=\["example"\]'"""),
        ("hosts:array:string=[a, yes]", "expected array of string"),
        ("limits:object=[", "expected object"),
        ("limits:object={day: 2020-01-01}", "expected object"),
        ("limits:object={1: a}", "expected object"),
    ],
)
def test_an_invalid_field_is_refused_with_a_hint(text: str, problem: str) -> None:
    """The message repeats the flag and has what to write instead."""
    with pytest.raises(ConfigError, match=problem) as caught:
        parse_fields([text])
    (line,) = caught.value.problems
    assert line.startswith(f"--field {text}: ")


def test_all_mistakes_are_reported_at_once() -> None:
    """Also fields given twice, and two names of one variable."""
    texts = ["a:string", "a:integer", "b:int", "siteURL:string", "siteUrl:string"]
    with pytest.raises(ConfigError) as caught:
        parse_fields(texts)
    twice, unknown, same = caught.value.problems
    assert twice == "--field a:integer: duplicate field; remove one of them"
    assert "unknown type 'int'" in unknown
    assert "variable site_url is also that of field siteURL" in same


@pytest.mark.parametrize("name", ["environment", "ansibleHost"])
def test_a_variable_on_which_ansible_acts_is_refused(name: str) -> None:
    """The role would not get it; another name is proposed."""
    hint = f"choose another name, such as memcached{name[0].upper()}{name[1:]}"
    with pytest.raises(ConfigError, match=hint):
        mark_keywords([Field(name, "string")], CACHE, NAMES, declared=True)


def test_a_keyword_is_passed_to_roles_that_declare_it() -> None:
    """It is marked for a generated role, and refused for other content."""
    fields = (Field("tags", "string"), Field("size", "integer"))
    marked = mark_keywords(fields, CACHE, NAMES, declared=True)
    assert [field.is_keyword for field in marked] == [True, False]
    with pytest.raises(ConfigError, match=r"--field tags: .*keywords"):
        mark_keywords(fields, CACHE, NAMES, declared=False)


def test_the_schema_of_a_spec_has_types_and_defaults() -> None:
    """Required fields are listed; each field has its type, its items and its default."""
    fields = parse_fields(["owner:string!", "hosts:array:object", "limits:object={a: 1}"])
    assert spec_schema(fields, "Text") == {
        "description": "Text",
        "type": "object",
        "required": ["owner"],
        "properties": {
            "owner": {"type": "string"},
            "hosts": {"type": "array", "items": FREE},
            "limits": FREE | {"default": {"a": 1}},
        },
    }


@pytest.mark.parametrize(
    ("texts", "more"),
    [
        ([], {"x-kubernetes-preserve-unknown-fields": True}),
        (["a:string"], {"properties": {"a": {"type": "string"}}}),
        (["a:string="], {"default": {}, "properties": {"a": {"type": "string", "default": ""}}}),
    ],
)
def test_a_spec_that_may_be_left_out(texts: list[str], more: dict[str, Any]) -> None:
    """It is empty by default if a field has a default, which the API server then sets."""
    schema = spec_schema(parse_fields(texts), "Text")
    assert schema == {"description": "Text", "type": "object"} | more


def test_fields_with_a_single_value_are_columns() -> None:
    """Arrays and objects are not."""
    fields = parse_fields(["siteTitle:string", "size:integer", "hosts:array:string", "o:object"])
    assert columns(fields) == [
        {"name": "SiteTitle", "type": "string", "jsonPath": ".spec.siteTitle"},
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
    ]


@pytest.mark.parametrize(
    ("text", "argument"),
    [
        ("size:integer=3", {"type": "int", "default": 3}),
        ("owner:string!", {"type": "str", "required": True}),
        ("ratio:number", {"type": "float"}),
        ("on:boolean", {"type": "bool"}),
        ("limits:object", {"type": "dict"}),
        ("hosts:array:string", {"type": "list", "elements": "str"}),
    ],
)
def test_arguments_of_a_role_have_types_of_ansible(text: str, argument: dict[str, Any]) -> None:
    """Types are those of Ansible's argument specs."""
    (field,) = parse_fields([text])
    assert field.argument == argument


@pytest.mark.parametrize(
    ("text", "example"),
    [("size:integer=3", 3), ("on:boolean", True), ("hosts:array:integer", [1]), ("o:object", {})],
)
def test_the_example_of_a_field_has_its_type(text: str, example: Any) -> None:
    """It is the default, or a value of the type."""
    (field,) = parse_fields([text])
    assert field.example == example
