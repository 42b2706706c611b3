"""Conditions that later versions of ansible-core refuse."""

from __future__ import annotations

from typing import Any

import pytest
from jinja2 import Environment

from operator_runner.tools.validate.conditions import deprecated

ENVIRONMENT = Environment(autoescape=False)


def found(condition: Any) -> list[str]:
    return list(deprecated(ENVIRONMENT, condition))


@pytest.mark.parametrize(
    ("condition", "kind"),
    [
        ("name | length", "int"),
        ("name | ansible.builtin.length", "int"),
        ("name | default('')", "str"),
        ("name | default()", "str"),
        ("name | default(none)", "NoneType"),
        ("(name | length) | default(false)", "int"),
        ("{{ name | default([]) }}", "list"),
        ("name is defined and name | length", "int"),
        ("name | length or flag", "int"),
        ("name | regex_search('a')", "str"),
        ("'a' if flag else false", "str"),
        ("flag | ternary('a', 'b')", "str"),
        ("query('env', 'HOME')", "list"),
        ("name.split(',')", "list"),
        ("name ~ 'a'", "str"),
        ("size - 1", "int"),
        ("{'a': 1}", "dict"),
        ("'yes'", "str"),
        ("1", "int"),
        ("none", "NoneType"),
        (1, "int"),
        (1.5, "float"),
        ({"a": 1}, "dict"),
    ],
)
def test_a_result_that_is_not_a_boolean(condition: Any, kind: str) -> None:
    """The type and the cure are in the message."""
    (message,) = found(condition)
    start = f"the condition can return {kind} instead of a boolean, which ansible-core 2.23 refuses"
    assert message.startswith(f"{start}: ")


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("", "the condition is empty"),
        (" ", "the condition is empty"),
        ("{{ name == 'a' }}", "ansible-core 2.23 refuses them"),
        ("{{ flag | bool }}", "ansible-core 2.23 refuses them"),
        ("{{ not a and b is defined }}", "ansible-core 2.23 refuses them"),
        ("{{ name }} == 'a'", "ansible-core 2.19 and later fail"),
        ("{{ a }} and {{ b }}", "ansible-core 2.19 and later fail"),
        ('name == "{{ other }}"', "a template within a text of an expression"),
        ("'{{ other }}' == name", "a template within a text of an expression"),
    ],
)
def test_delimiters_and_empty_conditions(condition: str, message: str) -> None:
    """Conditions that fail now have another message than those that will fail."""
    assert [message in each for each in found(condition)] == [True]


@pytest.mark.parametrize(
    "condition",
    [
        *(True, False, None, "flag", "{{ condition }}", "{{ name | default('a == b') }}"),
        *("name | length > 0", "name | bool", "not name", "name in [1]", "name is search('a')"),
        *("name is defined and flag", "flag | default(false)", "flag | default(other)"),
        *("result.stat.exists", "a[0]", "lookup('vars', 'flag')", "name.startswith('a')"),
        *("(a | length > 0) or flag", "'a' and flag", "[] or flag", "true", "items | first"),
        *("{% if flag %}true{% endif %}", "flag | ternary(true, false)", "a == '{'", "a ="),
        "flag if a is defined else b",
    ],
)
def test_what_reading_does_not_decide_is_not_reported(condition: Any) -> None:
    """A variable can be a boolean, or an expression in text."""
    assert found(condition) == []
