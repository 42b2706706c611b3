"""The syntax of fields, and what is derived from them."""

from __future__ import annotations

from typing import Any

import pytest

from operator_runner.core.errors import ConfigError
from operator_runner.core.model import GVK, ReservedNames
from operator_runner.tools.scaffold.fields import (
    Field,
    check_keywords,
    columns,
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
        (
            "size:integer=3,minimum=1,maximum=9",
            Field("size", "integer", default=3, limits={"minimum": 1, "maximum": 9}),
        ),
        ("ratio:number,minimum=-1", Field("ratio", "number", limits={"minimum": -1.0})),
        (
            "level:string!,enum=low,high",
            Field("level", "string", required=True, limits={"enum": ["low", "high"]}),
        ),
        (
            "code:string,pattern=^[a-z]{1,3}$,example=ab",
            Field("code", "string", limits={"pattern": "^[a-z]{1,3}$"}, sample="ab"),
        ),
        ("hosts:array:string,enum=a", Field("hosts", "array", "string", limits={"enum": ["a"]})),
    ],
)
def test_a_field_has_name_type_default_and_words(text: str, field: Field) -> None:
    """A field is NAME:TYPE, then `!` if it is required or `=` and its default, then words."""
    assert parse_fields([text]) == (field,)


def test_a_dotted_name_is_a_field_of_an_object_or_of_items() -> None:
    """Objects and lists on the way need no flag of their own, and may have one."""
    texts = ["tls.secretName:string!", "ports[].port:integer!", "ports[].tls.on:boolean=true"]
    on = Field("tls", "object", fields=(Field("on", "boolean", default=True),))
    port = Field("port", "integer", required=True)
    secret = Field("secretName", "string", required=True)
    ports = Field("ports", "array", "object", fields=(port, on))
    assert parse_fields(texts) == (Field("tls", "object", fields=(secret,)), ports)
    tls, _ = parse_fields([*texts, "tls:object!"])
    assert tls == Field("tls", "object", required=True, fields=(secret,))
    assert ports.schema == {
        "type": "array",
        "items": {
            "type": "object",
            "required": ["port"],
            "properties": {
                "port": {"type": "integer"},
                "tls": {
                    "type": "object",
                    "default": {},
                    "properties": {"on": {"type": "boolean", "default": True}},
                },
            },
        },
    }
    assert tls.argument == {
        "type": "dict",
        "required": True,
        "options": {"secret_name": {"type": "str", "required": True}},
    }
    assert ports.example == [{"port": 1, "tls": {"on": True}}]


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
        ("size:integer,minimun=1", "unknown word 'minimun'; write minimum"),
        ("size:integer=3,minimun=1", "unknown word 'minimun'; write minimum"),
        ("size:integer,few", "expected NAME:TYPE.*, with the words enum, minimum, maximum"),
        ("size:integer,minimum=a", "invalid minimum 'a': expected integer; write minimum=1"),
        ("size:integer,minimum=1,minimum=2", "minimum is given twice; remove one of them"),
        ("size:integer,minimum=3,maximum=2", "minimum is above maximum; exchange them"),
        ("size:integer=3,maximum=2", "invalid default '3': above maximum 2; change one of them"),
        ("size:integer,pattern=a", "pattern does not fit integer; .* one of enum, minimum, max"),
        ("on:boolean,enum=true", "enum does not fit boolean; remove it"),
        ("level:string=c,enum=a,b", "invalid default 'c': not in enum a, b; change one"),
        ("level:string,enum=a,,b", "invalid enum '': expected string; write enum=example"),
        ("code:string,pattern=(", "invalid pattern '\\(': missing"),
        ("code:string,pattern=a(?=b)", r"the API server does not support \(\?="),
        ("code:string,pattern=^x{9}$", "needs a value that matches pattern; add ,example=VALUE"),
        ("code:string,pattern=^x$,example=y", "invalid value 'y': does not match pattern"),
        ("hosts:array:string=[c],enum=a,b", "invalid default .*: not in enum a, b"),
        ("tls.secret_name:string", "invalid name 'secret_name': .*write tls.secretName"),
        ("tags[]:string", "a list has a type of its own; write tags:array:string"),
    ],
)
def test_an_invalid_field_is_refused_with_a_hint(text: str, problem: str) -> None:
    """The message repeats the flag and has what to write instead."""
    with pytest.raises(ConfigError, match=problem) as caught:
        parse_fields([text])
    (line,) = caught.value.problems
    assert line.startswith(f"field {text}: ")


def test_all_mistakes_are_reported_at_once() -> None:
    """Also fields given twice, and two names of one variable."""
    texts = ["a:string", "a:integer", "b:int", "siteURL:string", "siteUrl:string", "a.x:string"]
    with pytest.raises(ConfigError) as caught:
        parse_fields([*texts, "o:object={}", "o.x:string", "l.x:string", "l[].x:string"])
    twice, unknown, same, text, default, items = caught.value.problems
    assert "a is of type string; fields of an object are a.NAME" in text
    assert "o has fields, so it cannot have a default; give its fields defaults" in default
    assert "l is of type object; fields of an object are l.NAME, those of the items" in items
    assert twice == "field a:integer: duplicate field; remove one of them"
    assert "unknown type 'int'" in unknown
    assert "variable site_url is also that of field siteURL" in same


@pytest.mark.parametrize("name", ["environment", "ansibleHost"])
def test_a_variable_on_which_ansible_acts_is_refused(name: str) -> None:
    """The role would not get it; another name is proposed."""
    hint = f"choose another name, such as memcached{name[0].upper()}{name[1:]}"
    with pytest.raises(ConfigError, match=hint):
        check_keywords([Field(name, "string")], CACHE, NAMES, declared=True)


def test_a_keyword_is_passed_to_roles_that_declare_it() -> None:
    """It is accepted for a generated role, and refused for other content."""
    fields = (Field("tags", "string"), Field("size", "integer"))
    check_keywords(fields, CACHE, NAMES, declared=True)
    with pytest.raises(ConfigError, match=r"field tags: .*keywords"):
        check_keywords(fields, CACHE, NAMES, declared=False)


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
        ("level:string,enum=a,b", {"type": "str", "choices": ["a", "b"]}),
    ],
)
def test_arguments_of_a_role_have_types_of_ansible(text: str, argument: dict[str, Any]) -> None:
    """Types are those of Ansible's argument specs."""
    (field,) = parse_fields([text])
    assert field.argument == argument


@pytest.mark.parametrize(
    ("text", "example"),
    [
        *(("size:integer=3", 3), ("on:boolean", True), ("o:object", {})),
        *(("hosts:array:integer", [1]), ("size:integer,minimum=7", 7), ("n:number,maximum=0", 0)),
        *(("level:string,enum=a,b", "a"), ("size:string,pattern=^[0-9]+Gi$", "1Gi")),
        ("codes:array:string,pattern=^x$,example=x", ["x"]),
    ],
)
def test_the_example_of_a_field_is_valid(text: str, example: Any) -> None:
    """It is the default, or a value of the type within the limits."""
    (field,) = parse_fields([text])
    assert field.example == example
