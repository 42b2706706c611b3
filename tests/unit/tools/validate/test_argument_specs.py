"""Argument specs and the fields of the CRD."""

from __future__ import annotations

from typing import Any

import pytest

from operator_runner.tools.validate.spec_fields import SpecFields, disagreements, invalid

FIELDS = SpecFields({"site_title": {"type": "string"}, "size": {"type": "integer"}})


def specs(**options: Any) -> Any:
    return {"argument_specs": {"main": {"options": options}}}


def messages(data: Any) -> list[tuple[str, bool]]:
    problems = [*invalid(data)] or [*disagreements(data, FIELDS, {"image"})]
    return [(message, is_error) for _, message, is_error in problems]


def test_specs_that_agree_with_the_crd_have_no_finding() -> None:
    """With the CRD and with variables of the role."""
    good = specs(site_title={"type": "str"}, size={"type": "int"}, image={"required": True})
    assert messages(good) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": {"typ": "int"}}, "option size: unknown key 'typ': did you mean type?"),
        ({"size": {"type": "flot"}}, "option size: unknown type 'flot': did you mean float?"),
        ({"size": 3}, "option size must be a map such as `type: str`"),
        (
            {"a": {"type": "dict", "options": {"b": {"type": "strr"}}}},
            "option b: unknown type 'strr': did you mean str?",
        ),
        (
            {"size": {"type": "list"}, "site_title": {}},
            "option size has type list, the field of the CRD is integer; give both the same type",
        ),
        (
            {"siteTitle": {}, "site_title": {}, "size": {"type": "int"}},
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
