"""Errors in templates name the file, the line and the nearest variable, cold and warm."""

from __future__ import annotations

import pytest

from tests.contract.ansible.launchers.launching import Both
from tests.contract.ansible.launchers.projects import Project

pytestmark = pytest.mark.local_only("the messages are those of the operator's patches")

SPEC = {"site_title": "Shop", "web": {"listen_port": 80, "urls": ["a"]}}
PLACE = "roles/tried/templates/page.j2"
WAYS = {
    "template": "- ansible.builtin.template: {src: page.j2, dest: '{{ out }}/page'}\n",
    "lookup": "- ansible.builtin.set_fact: {page: \"{{ lookup('template', 'page.j2') }}\"}\n",
    "k8s": "- kubernetes.core.k8s: {template: page.j2}\n",
    "k8s with a path": "- kubernetes.core.k8s: {template: {path: page.j2}}\n",
    "several": "- kubernetes.core.k8s: {template: [{path: first.j2}, {path: page.j2}]}\n",
}
OTHER = {"roles/tried/templates/first.j2": "a: {{ site_title }}\n"}


def message_of(both: Both, tasks: str, files: dict[str, str], *, native: bool = False) -> str:
    """Return the message of the one failure."""
    files = {f"roles/tried/{name}": text for name, text in files.items()}
    record = both(Project(tasks, {**OTHER, **files}, variables=SPEC, native_types=native))
    (failure,) = record.outcome.failures
    return failure.message


@pytest.mark.parametrize("tasks", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("native", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_variable_in_camel_case_is_hinted_in_snake_case(
    both: Both, tasks: str, native: bool
) -> None:
    """Each way to use a template file gives its line, and the name in snake case."""
    text = "{# settings #}\n{% if web %}\ntitle: {{ siteTitle }}\n{% endif %}\n"
    message = message_of(both, tasks, {"templates/page.j2": text}, native=native)
    assert "'siteTitle' is undefined: spec fields are in snake case here: site_title (" in message
    assert f"{PLACE}:3)" in message


def test_a_nested_key_in_camel_case_is_hinted_in_snake_case(both: Both) -> None:
    """Keys of maps are in snake case too."""
    text = "\n{% for url in web.urls %}\n{{ url }}:{{ web.listenPort }}\n{% endfor %}\n"
    message = message_of(both, WAYS["lookup"], {"templates/page.j2": text})
    hint = "has no attribute 'listenPort': nested keys are in snake case too: listen_port ("
    assert hint in message
    assert f"{PLACE}:3)" in message


ERRORS = {
    "syntax": ("a\n{% for x in %}\n", f"{PLACE}:2: Expected an expression"),
    "filter": ("a\n\n{{ web | no_such }}\n", f"{PLACE}:3: No filter named 'no_such'"),
    "operator": ("a\n{{ 1 / 0 }}\n", f"{PLACE}:2: division by zero"),
    "failing filter": ("a\nb\n{{ 'x' | from_json }}\n", f"{PLACE}:3: "),
    "header": ("#jinja2: trim_blocks: False\n\n{{ titel }}\n", f"{PLACE}:3)"),
    "nearest": ("{{ site_titel }}\n", "'site_titel' is undefined: did you mean site_title? ("),
    "no hint": ("{{ something_else }}\n", "'something_else' is undefined (/"),
    "include": ("{% include 'part.j2' %}\n", "roles/tried/templates/part.j2:2)"),
    "import": ("{% from 'macro.j2' import m %}\n{{ m() }}\n", "roles/tried/templates/macro.j2:2)"),
    "macro": ("{% macro m() %}\n\n{{ titel }}{% endmacro %}\n{{ m() }}\n", f"{PLACE}:3)"),
}
"""Templates, and a part of the message of their error."""
SHORT = {"syntax", "header", "nearest", "include"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(*error, id=name, marks=() if name in SHORT else pytest.mark.slow)
        for name, error in ERRORS.items()
    ],
)
def test_a_template_error_has_its_place(both: Both, text: str, expected: str) -> None:
    """For each error in a template, the line is that of the file with the mistake."""
    files = {
        "templates/page.j2": text,
        "templates/part.j2": "part\n{{ titel }}\n",
        "templates/macro.j2": "{% macro m() %}\n{{ titel }}\n{% endmacro %}\n",
    }
    assert expected in message_of(both, WAYS["template"], files)


def test_an_error_of_a_default_is_at_the_line_of_its_file(both: Both) -> None:
    """A mistake in another YAML file than the task's is at the line of that file."""
    files = {"defaults/main.yml": "one: 1\ntitle: '{{ siteTitle }}'\n"}
    message = message_of(both, "- ansible.builtin.debug: {msg: '{{ title }}'}\n", files)
    assert "site_title (" in message
    assert "roles/tried/defaults/main.yml:2)" in message


def test_undefined_names_that_are_expected(both: Both) -> None:
    """`default` and `is defined` work as before."""
    text = "{{ siteTitle | default('a') }}{{ web.x is defined }}{{ web.x.y | default('b') }}\n"
    project = Project(WAYS["template"], {PLACE: text}, variables=SPEC)
    record = both(project)
    assert record.outcome.successful
    assert record.files["page"].endswith("aFalseb\n")


def test_hidden_results_have_no_message(both: Both) -> None:
    """`no_log` hides these messages like all others."""
    tasks = WAYS["template"] + "  no_log: true\n"
    message = message_of(both, tasks, {"templates/page.j2": "{{ siteTitle }}\n"})
    assert "siteTitle" not in message
