"""Argument specs and the fields of the CRD."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from operator_runner.tools.validate.spec_fields import (
    Definitions,
    SpecFields,
    disagreements,
    invalid,
)

FIELDS = SpecFields({"site_title": {"type": "string"}, "size": {"type": "integer"}})
DEFINED = Definitions(others=frozenset({"image", "passed"}))
_VALUES: dict[str, list[Any]] = {
    "string": ["", "3", "yes", "a=b", "5M"],
    "integer": [0, 1, 3],
    "number": [1.0, 2.5],
    "boolean": [True, False],
    "array": [[], [1], ["a"]],
    "object": [{}, {"a": 1}],
}


def specs(**options: Any) -> Any:
    return {"argument_specs": {"main": {"options": options}}}


def messages(data: Any, fields: SpecFields = FIELDS) -> list[tuple[str, bool]]:
    problems = [*invalid(data)] or [*disagreements(data, fields, DEFINED)]
    return [(message, is_error) for _, message, is_error in problems]


def test_specs_that_agree_with_the_crd_have_no_finding() -> None:
    """With the CRD and with variables of the role."""
    good = specs(site_title={"type": "str"}, size={"type": "int"}, image={"required": True})
    assert messages(good) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": {"type": "flot"}}, "option size: unknown type 'flot': did you mean float?"),
        ({"size": 3}, "option size must be a map such as `type: str`"),
        (
            {"a": {"type": "dict", "options": {"b": {"type": "strr"}}}},
            "option b: unknown type 'strr': did you mean str?",
        ),
        (
            {"size": {"type": "dict"}, "site_title": {}},
            "option size has type dict, the field of the CRD is integer; give both the same type",
        ),
        (
            {"siteTitle": {"required": True}, "site_title": {}, "size": {"type": "int"}},
            "option siteTitle is never set: spec fields are in snake case here: site_title",
        ),
        (
            {"owner": {"required": True}, "site_title": {}, "size": {"type": "int"}},
            (
                "option owner is required, and the CRD has no such field; "
                "add the field to the CRD, or remove `required`"
            ),
        ),
    ],
)
def test_a_mistake_is_an_error_with_a_hint(options: Any, message: str) -> None:
    """Each is an error with its hint."""
    assert messages(specs(**options)) == [(message, True)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": {"typ": "int"}}, "option size: unknown key 'typ': did you mean type?"),
        (
            {"siteTitle": {}, "site_title": {}, "size": {"type": "int"}},
            "option siteTitle is never set: spec fields are in snake case here: site_title",
        ),
    ],
)
def test_what_ansible_accepts_is_a_warning(options: Any, message: str) -> None:
    """The run does not fail."""
    assert messages(specs(**options)) == [(message, False)]


@pytest.mark.parametrize("schema", _VALUES)
@pytest.mark.parametrize("kind", ["str", "int", "float", "bool", "list", "dict", "bytes", "json"])
def test_types_that_differ_are_an_error_if_ansible_refuses_every_value(
    schema: str, kind: str
) -> None:
    """With Ansible's own validator."""
    validator = ArgumentSpecValidator({"size": {"type": kind}})
    results = [validator.validate({"size": each}) for each in _VALUES[schema]]
    found = messages(specs(size={"type": kind}), SpecFields({"size": {"type": schema}}))
    is_refused = all(each.error_messages for each in results)
    assert any(is_error for _, is_error in found) == is_refused


NESTED = SpecFields(
    {
        "tls": {
            "type": "object",
            "properties": {
                "secretName": {"type": "string"},
                "hosts": {
                    "type": "array",
                    "items": {"type": "object", "properties": {"port": {"type": "integer"}}},
                },
            },
        }
    }
)
HOSTS = {"type": "list", "elements": "dict", "options": {"port": {"type": "int"}}}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"secret_name": {}, "hosts": HOSTS}, []),
        ({"name": {"aliases": ["secret_name"]}, "hosts": HOSTS}, []),
        ({"secret_name": {}, "hosts": HOSTS, "more": {"required": False}}, []),
        ({"hosts": HOSTS}, ["option tls has no option for secret_name of the CRD"]),
        ({"secret_name": {}, "hosts": {"type": "list", "elements": "dict"}}, []),
        (
            {"secret_name": {}, "hosts": {**HOSTS, "options": {"port": {"type": "list"}}}},
            [],  # 1 is converted to a list
        ),
        (
            {"secret_name": {}, "hosts": {**HOSTS, "options": {"port": {"type": "dict"}}}},
            ["option port has type dict, the field of the CRD is integer"],
        ),
        (
            {"secret_name": {}, "hosts": {**HOSTS, "options": {}}},
            ["option hosts has no option for port of the CRD"],
        ),
        (
            {"secret_name": {}, "hosts": HOSTS, "more": {"required": True}},
            ["option more is required, and the CRD has no such field"],
        ),
    ],
)
def test_options_of_objects_are_those_of_the_crd(options: Any, expected: list[str]) -> None:
    """With Ansible's own validator: it refuses other keys, unlike those of the role itself."""
    tls = {"type": "dict", "options": options}
    value = {"secret_name": "a", "hosts": [{"port": 1}]}
    result = ArgumentSpecValidator({"tls": tls}).validate({"tls": value})
    assert bool(result.error_messages) == bool(expected)
    errors = [message for message, is_error in messages(specs(tls=tls), NESTED) if is_error]
    assert [each.partition(";")[0] for each in errors] == expected


def test_options_of_objects_in_camel_case_are_never_set() -> None:
    """The field of the CRD is in snake case.

    An object that allows any field, or that tasks pass to the role, has no finding.
    """
    tls = {"type": "dict", "options": {"secretName": {}, "hosts": HOSTS}}
    assert [each.partition(";")[0] for each, _ in messages(specs(tls=tls), NESTED)] == [
        "option secretName is never set: spec fields are in snake case here: secret_name",
        "option tls has no option for secret_name of the CRD",
    ]
    passed = SpecFields({"passed": NESTED.schemas["tls"], "other": {}})
    assert messages(specs(passed=tls, other={}), passed) == []
    any_field = SpecFields({"tls": {"type": "object"}})
    assert messages(specs(tls={**tls, "options": {"a": {"required": True}}}), any_field) == []


def test_a_name_that_is_not_a_text_is_named() -> None:
    """`on: {}` is the key true: an error beside texts, with which Ansible sorts it."""
    cure = "option True is not a text: YAML reads on, off, yes and no as booleans; quote the name"
    for names, is_error in (((True,), False), ((True, "image"), True)):
        options: dict[Any, Any] = {name: {} for name in names}
        data = {"argument_specs": {"main": {"options": options}}}
        assert [each[1:] for each in invalid(data)] == [(cure, is_error)]


def test_a_field_without_an_option_is_a_warning() -> None:
    """It is a warning: the role runs."""
    assert messages(specs(size={"type": "int"})) == [
        ("no option for site_title of the CRD; add it, so that its type is checked", False)
    ]


def test_a_file_without_specs_is_an_error() -> None:
    """The key of the file is required."""
    assert messages({"main": {}}) == [("the file must have the map `argument_specs`", True)]
