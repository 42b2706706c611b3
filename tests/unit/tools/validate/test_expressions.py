"""What templates use."""

from __future__ import annotations

import pytest
from jinja2 import Environment

from operator_runner.tools.validate.expressions import ITEM, Uses, path_of, uses

ENVIRONMENT = Environment(autoescape=False)


def found(text: str, **aliases: tuple[str, ...]) -> Uses:
    return uses(ENVIRONMENT, text, aliases)


def test_variables_have_the_line_of_their_first_use() -> None:
    """Names that the template sets itself are not variables."""
    text = (
        "{% set b = 1 %}\n{{ b + a }}\n{% for c in a %}{{ c }}{{ loop.index }}{% endfor %}\n{{ d }}"
    )
    assert [(each.name, each.line) for each in found(text).variables] == [("a", 2), ("d", 4)]


@pytest.mark.parametrize(
    "text", ["{{ a | default(1) }}", "{{ a.b is defined }}", "{% if a is not defined %}{% endif %}"]
)
def test_names_that_may_be_undefined(text: str) -> None:
    """`default` and `is defined` expect it."""
    assert found(text).guarded == {"a"}


def test_filters_tests_and_lookups_are_found_with_their_lines() -> None:
    """Unknown ones are returned too, with their lines."""
    used = found("{{ a | nope }}\n{{ a is odd_one }}\n{{ lookup('template', 'x.j2') }}")
    assert [(each.name, each.line) for each in used.filters] == [("nope", 1)]
    assert [(each.name, each.line) for each in used.tests] == [("odd_one", 2)]
    assert [(each.name, each.line) for each in used.lookups] == [("template", 3)]
    assert [each.name for each in used.files] == ["x.j2"]


def test_keys_of_variables_and_items_are_found() -> None:
    """Attributes and literal keys, through loops of the template and of the task."""
    text = "{{ a.b['c'] }}{% for x in a.list %}{{ x.y }}{% endfor %}{{ item.z }}"
    paths = {each.path for each in found(text, item=("things", ITEM)).accesses}
    assert {("a", "b", "c"), ("a", "list", ITEM, "y"), ("things", ITEM, "z")} <= paths


def test_keys_of_local_variables_are_not_those_of_variables() -> None:
    """A name with another meaning in the template is left out."""
    assert not found("{% set a = {} %}{{ a.b }}").accesses


def test_a_template_of_one_variable_is_its_path() -> None:
    """Such as the loop of a task."""
    assert path_of(ENVIRONMENT, "{{ web.ports }}") == ("web", "ports")
    assert path_of(ENVIRONMENT, "{{ web.ports | list }}") is None
