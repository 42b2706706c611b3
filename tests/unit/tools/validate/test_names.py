"""Names that are defined nowhere."""

from __future__ import annotations

import dataclasses

import pytest
from jinja2 import Environment

from operator_runner.core.model import GVK, Json, RunContent, Watch
from operator_runner.tools.validate.expressions import uses
from operator_runner.tools.validate.spec_fields import (
    Definitions,
    SpecFields,
    spec_fields,
    undefined,
)

WATCH = Watch(GVK("example.com", "v1", "Site"), RunContent())
SCHEMA: Json = {
    "properties": {
        "siteTitle": {"type": "string"},
        "web": {"properties": {"listenPort": {}, "extra": {"additionalProperties": True}}},
        "ports": {"type": "array", "items": {"properties": {"hostPort": {}}}},
    }
}


def crd(schema: Json, version: str = "v1") -> Json:
    versions = [{"name": version, "schema": {"openAPIV3Schema": {"properties": {"spec": schema}}}}]
    spec = {"group": "example.com", "names": {"kind": "Site"}, "versions": versions}
    return {"kind": "CustomResourceDefinition", "spec": spec}


FIELDS = spec_fields(WATCH, [crd(SCHEMA)])

NOTHING = Definitions()


def found(
    text: str, definitions: Definitions = NOTHING, fields: SpecFields = FIELDS
) -> list[tuple[str, bool]]:
    used = uses(Environment(autoescape=False), text)
    definitions = dataclasses.replace(definitions, guarded=definitions.guarded | used.guarded)
    return [each[2:] for each in undefined(used, definitions, fields)]


def messages(
    text: str, definitions: Definitions = NOTHING, fields: SpecFields = FIELDS
) -> list[str]:
    return [message for message, _ in found(text, definitions, fields)]


@pytest.mark.parametrize(
    "text",
    [
        "{{ site_title }}{{ web.listen_port }}{{ web.extra.anyThing }}{{ web.items() }}",
        "{{ ansible_operator_meta.name }}{{ _example_com_site.spec.siteTitle }}",
        "{{ ansible_facts.x }}{{ inventory_hostname }}{{ omit }}{{ hostvars }}",
        "{{ other | default('') }}{% if ports[0].name is defined %}{% endif %}",
        "{% for p in ports %}{{ p.host_port }}{% endfor %}",
    ],
)
def test_names_that_are_defined(text: str) -> None:
    """Fields, variables of the resource, magic variables, and optional variables."""
    assert messages(text) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "{{ siteTitle }}",
            "'siteTitle' is undefined: spec fields are in snake case here: site_title",
        ),
        (
            "{{ siteTitle | default('x') }}",
            "'siteTitle' is undefined: spec fields are in snake case here: site_title",
        ),
        ("{{ site_titel }}", "'site_titel' is undefined: did you mean site_title?"),
        (
            "{{ owner }}",
            "'owner' is undefined; add it to the CRD, or a value to defaults/main.yml of the role",
        ),
        (
            "{{ web.listenPort }}",
            "'web' has no attribute 'listenPort': nested keys are in snake case too: listen_port",
        ),
        (
            "{% for p in ports %}{{ p.hostPort }}{% endfor %}",
            "'ports[]' has no attribute 'hostPort': nested keys are in snake case too: host_port",
        ),
        ("{{ ports[0].x }}", "'ports[]' has no attribute 'x'; the CRD has host_port"),
        (
            "{{ web.listenPort | default(1) }}",
            "'web' has no attribute 'listenPort': nested keys are in snake case too: listen_port",
        ),
    ],
)
def test_names_that_are_not(text: str, message: str) -> None:
    """Each has the nearest name or the hint."""
    assert messages(text) == [message]


@pytest.mark.parametrize(
    ("text", "is_error"),
    [
        ("{{ siteTitle }}", True),
        ("{{ siteTitle | default('x') }}", False),
        ("{% if siteTitle is defined %}{{ siteTitle }}{% endif %}", False),
        ("{{ web.listenPort }}", True),
        ("{% if web.listenPort is defined %}{{ web.listenPort }}{% endif %}", False),
        (
            "{% for p in ports %}{{ p.hostPort if p.hostPort is defined }}{% endfor %}",
            False,
        ),
    ],
)
def test_what_a_template_expects_to_be_undefined_is_a_warning(text: str, is_error: bool) -> None:
    """Such a line does not fail, though its name is never defined."""
    assert {severity for _, severity in found(text)} == {is_error}


def test_names_in_a_project_that_may_define_any() -> None:
    """Without a CRD, or with names that are computed, only camel case is certain."""
    openings = [
        (Definitions(), spec_fields(WATCH, [])),
        (Definitions(), spec_fields(WATCH, [crd({"x-kubernetes-preserve-unknown-fields": True})])),
        (Definitions(is_open=True), FIELDS),
    ]
    for opening, fields in openings:
        definitions = dataclasses.replace(opening, others=frozenset({"site_title"}))
        assert messages("{{ owner }}", definitions, fields) == []
        assert len(messages("{{ siteTitle }}", definitions, fields)) == 1


def test_without_snake_case_names_are_those_of_the_crd() -> None:
    """The names are those of the CRD."""
    fields = spec_fields(dataclasses.replace(WATCH, snake_case_parameters=False), [crd(SCHEMA)])
    assert messages("{{ siteTitle }}{{ web.listenPort }}", fields=fields) == []
    assert messages("{{ site_title }}", fields=fields) == [
        "'site_title' is undefined: did you mean siteTitle?"
    ]


def test_the_schema_is_that_of_the_watched_version() -> None:
    """Another version of the kind has other fields."""
    assert spec_fields(WATCH, [crd(SCHEMA, "v2")]).is_open


def test_keys_of_a_variable_that_a_task_sets_are_unknown() -> None:
    """The same name may hold another map there; an option of an argument spec holds the field."""
    web = frozenset({"web"})
    assert messages("{{ web.listenPort }}", Definitions(others=web)) == []
    assert messages("{{ web.x }}", Definitions(defaults=web)) == []
    assert len(messages("{{ web.listenPort }}{{ web.x }}", Definitions(declared=web))) == 2
