"""Fields of a spec that become no variables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from operator_runner.core.model import GVK, Json, ReservedNames, RunContent, Watch
from operator_runner.reconcile.reserved_fields import (
    dropped,
    note,
    paths,
    reported,
    reserved_fields,
)

WATCH = Watch(GVK("cache.example.com", "v1", "Memcached"), RunContent(role=Path("/roles/web")))
NAMES = ReservedNames(frozenset({"vars", "sops_binary"}), frozenset({"hosts", "port"}))


def body(*fields: str) -> Json:
    return {"metadata": {"name": "a"}, "spec": dict.fromkeys(fields, "x")}


def found(watch: Watch, *fields: str, declared: frozenset[str] = frozenset()) -> list[str]:
    return paths(dropped(reserved_fields(body(*fields), watch, NAMES), declared))


@pytest.mark.parametrize(
    "field",
    [
        "ansibleConnection",
        "ansible_connection",
        "ansible-connection",
        " ansible_connection",
        "_ansible_debug",
        "__ansible_unsafe",
        "__ansibleType",
        "ansible_custom_interpreter",
        "vars",
        "Vars_",
        "sopsBinary",
        "hosts",
        "ansibleOperatorMeta",
        "_cache_example_com_memcached",
        "_cacheExampleComMemcached_spec",
    ],
)
def test_a_name_that_means_something_is_dropped(field: str) -> None:
    """As it is written, or as the variable that it would become."""
    watch = replace(WATCH, snake_case_parameters=True)
    names = replace(NAMES, acted_on=NAMES.acted_on | {"_vars_"})

    assert [found.name for found in reserved_fields(body(field, "size"), watch, names)] == [field]


def test_a_top_level_field_may_have_a_reserved_name_too() -> None:
    """It is not passed, and its path has no spec in front."""
    watch = replace(WATCH, top_level_fields=("vars", "data", "absent"))
    resource = body("size") | {"vars": {}, "data": {}}
    assert paths(reserved_fields(resource, watch, NAMES)) == ["vars"]


def test_ordinary_names_are_variables() -> None:
    """Whatever only resembles a reserved name."""
    assert found(WATCH, "size", "ansible", "host", "variables", "namespace", "") == []


def test_without_snake_case_names_count_as_they_are() -> None:
    """`ansibleHost` is a variable that Ansible has no use for."""
    watch = replace(WATCH, snake_case_parameters=False)

    assert found(watch, "ansibleHost", "ansible_host", "sopsBinary") == ["spec.ansible_host"]


def test_a_keyword_that_the_role_declares_is_a_variable() -> None:
    """Names that Ansible acts on are dropped in any case."""
    declared = frozenset({"port", "vars", "ansible_host"})
    fields = ("hosts", "port", "vars", "ansibleHost")

    assert found(WATCH, *fields, declared=declared) == [
        "spec.hosts",
        "spec.vars",
        "spec.ansibleHost",
    ]


def test_the_watch_allows_names() -> None:
    """By the name of the field or of the variable; variables of the operator are never allowed."""
    watch = replace(WATCH, allow_vars=frozenset({"ansibleHost", "vars", "ansible_operator_meta"}))

    assert found(watch, "ansibleHost", "vars", "hosts", "ansibleOperatorMeta") == [
        "spec.hosts",
        "spec.ansibleOperatorMeta",
    ]


def test_the_note_names_fields_reasons_and_hint() -> None:
    """One text for all that are dropped."""
    fields = reserved_fields(
        body("ansibleHost", "hosts", "_cache_example_com_memcached"), WATCH, NAMES
    )

    assert note(fields) == (
        "Not passed to the role: spec.ansibleHost (Ansible acts on variables of these names);"
        " spec.hosts (Ansible has keywords of these names, and the role does not declare them as"
        " variables); spec._cache_example_com_memcached (the operator sets variables of these"
        " names); rename the fields, or allow their names with allowVars in watches.yaml"
    )
    assert note(fields[2:]).endswith("; rename the fields")


def test_a_hostile_resource_does_not_flood_the_log() -> None:
    """Of many fields the first are named, long names are cut, and odd ones are quoted."""
    many = paths(reserved_fields(body(*(f"ansible_{n}" for n in range(1000))), WATCH, NAMES))
    (long,) = paths(reserved_fields(body("ansible_" + "x" * 10_000), WATCH, NAMES))
    (odd,) = paths(reserved_fields(body("ansible_\x1b[2J"), WATCH, NAMES))

    assert (len(many), many[-1]) == (21, "980 more")
    assert len(long) < 100
    assert odd == r'spec["ansible_\u001b[2J"]'


def test_keywords_of_built_in_kinds_are_not_reported() -> None:
    """A Deployment has `spec.strategy` anyway; what Ansible acts on is reported there too."""
    deployment = replace(WATCH, gvk=GVK("apps", "v1", "Deployment"))
    for watch, expected in ((WATCH, ["spec.hosts", "spec.vars"]), (deployment, ["spec.vars"])):
        fields = reserved_fields(body("hosts", "vars"), watch, NAMES)
        assert paths(reported(fields, watch.gvk)) == expected
