"""The extra vars of a run."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from operator_runner.core.model import GVK, Finalizer, Json, PlainMap, RunContent, Watch
from operator_runner.reconcile.variables import extra_vars, templated_fields

WATCH = Watch(GVK("cache.my-example.com", "v1", "MemCached"), RunContent(role=Path("/roles/web")))
OBJECT = "_cache_my_example_com_memcached"


def body(spec: Any) -> Json:
    return {
        "apiVersion": "cache.my-example.com/v1",
        "kind": "MemCached",
        "metadata": {"name": "sample", "namespace": "shop"},
        "spec": spec,
    }


def test_a_role_sees_its_resource_in_all_its_forms() -> None:
    """Spec in snake case, meta, the whole resource, and its spec as it was written."""
    resource = body({"sizeLimit": 3, "podSpec": [{"hostIP": "x"}]})

    assert extra_vars(resource, WATCH, cleanup=False) == {
        "size_limit": 3,
        "pod_spec": [{"host_ip": "x"}],
        "ansible_operator_meta": {"namespace": "shop", "name": "sample"},
        OBJECT: resource,
        f"{OBJECT}_spec": {"sizeLimit": 3, "podSpec": [{"hostIP": "x"}]},
    }


def test_without_snake_case_names_stay() -> None:
    """snakeCaseParameters: false hands over the spec as it is."""
    watch = replace(WATCH, snake_case_parameters=False)

    assert extra_vars(body({"sizeLimit": 3}), watch, cleanup=False)["sizeLimit"] == 3


@pytest.mark.parametrize("spec", [None, "text", ["a"], 3])
def test_a_spec_that_is_not_a_map_is_empty(spec: Any) -> None:
    """Kinds without a spec, such as ConfigMap, run too."""
    resource = body(spec)

    variables = extra_vars(resource, WATCH, cleanup=False)

    assert set(variables) == {"ansible_operator_meta", OBJECT, f"{OBJECT}_spec"}
    assert variables[f"{OBJECT}_spec"] == {}
    assert variables[OBJECT] == resource


def test_top_level_fields_become_variables_where_the_watch_names_them() -> None:
    """As fields of the spec do, which win; a missing field does not become a variable."""
    resource = body({"size": 3}) | {"rbacBindings": [{"roleRef": "a"}], "data": {"b": 1}, "size": 1}
    watch = replace(WATCH, top_level_fields=("rbacBindings", "size", "rules"))

    variables = extra_vars(resource, watch, cleanup=False)

    assert variables["rbac_bindings"] == [{"role_ref": "a"}]
    assert variables["size"] == 3
    assert not {"data", "rules"} & set(variables)
    assert "rbac_bindings" not in extra_vars(resource, WATCH, cleanup=False)


def test_marked_unsafe_top_level_fields_are_not_templates() -> None:
    """Text of a ConfigMap is text."""
    watch = replace(WATCH, top_level_fields=("data",), mark_unsafe=True)
    resource = {"metadata": {"name": "a"}, "data": {"a": "{{ 1 }}"}}

    assert extra_vars(resource, watch, cleanup=False)["data"] == {
        "a": {"__ansible_unsafe": "{{ 1 }}"}
    }


def test_a_kind_of_the_core_group_has_two_underscores() -> None:
    """The group between them is empty; a resource without namespace has an empty one."""
    watch = replace(WATCH, gvk=GVK("", "v1", "Secret"))

    variables = extra_vars({"metadata": {"name": "key"}}, watch, cleanup=False)

    assert {"__secret", "__secret_spec"} < set(variables)
    assert variables["ansible_operator_meta"] == {"namespace": "", "name": "key"}


def test_later_variables_override_earlier_ones() -> None:
    """Spec, meta, object, watch vars, and the finalizer's vars in a clean-up alone."""
    watch = replace(
        WATCH,
        vars={"size": "watch", "state": "watch", OBJECT: "watch"},
        finalizer=Finalizer("a/b", None, {"state": "finalizer"}),
    )
    resource = body({"size": "spec", "state": "spec", "ansibleOperatorMeta": "spec"})

    run = extra_vars(resource, watch, cleanup=False)
    cleanup = extra_vars(resource, watch, cleanup=True)

    assert (run["size"], run["state"], run[OBJECT]) == ("watch", "watch", "watch")
    assert run["ansible_operator_meta"] == {"namespace": "shop", "name": "sample"}
    assert cleanup == run | {"state": "finalizer"}


def test_marked_unsafe_no_text_of_the_user_is_a_template() -> None:
    """Strings of spec and resource are wrapped; keys, numbers, meta and watch vars are not."""
    watch = replace(WATCH, mark_unsafe=True, vars={"meta": "{{ ansible_operator_meta }}"})
    resource = body({"textKey": "{{ x }}", "deep": [{"aList": ["t", 1, True, None]}]})

    variables = extra_vars(resource, watch, cleanup=False)

    text = {"__ansible_unsafe": "{{ x }}"}
    numbers = [{"__ansible_unsafe": "t"}, 1, True, None]
    assert variables["text_key"] == text
    assert variables["deep"] == [{"a_list": numbers}]
    assert variables[f"{OBJECT}_spec"] == {"textKey": text, "deep": [{"aList": numbers}]}
    assert variables[OBJECT]["kind"] == {"__ansible_unsafe": "MemCached"}
    assert variables[OBJECT]["spec"]["textKey"] == text
    assert variables["ansible_operator_meta"] == {"namespace": "shop", "name": "sample"}
    assert variables["meta"] == "{{ ansible_operator_meta }}"


def test_text_that_is_a_template_is_named_by_its_path() -> None:
    """Only the spec counts, and only what Ansible would evaluate."""
    spec = {"a": "{{ x }}", "b": [{"c": "{% if x %}"}, "{ x }", 1], "d": {"{{ key }}": "{# x #}"}}

    assert list(templated_fields(body(spec))) == ["spec.a", "spec.b[0].c", "spec.d.{{ key }}"]
    assert list(templated_fields({"metadata": {"name": "{{ x }}"}})) == []
    assert list(templated_fields({"data": {"a": "{{ x }}"}})) == ["data.a"]


def test_empty_keys_do_not_stop_a_resource() -> None:
    """A key without a name is a variable without one."""
    variables = extra_vars(body({"": 1, "a": {"": 2}}), WATCH, cleanup=False)

    assert variables[""] == 1
    assert variables["a"] == {"": 2}


def test_the_resource_is_not_changed() -> None:
    """The same body may be used again afterwards."""
    resource = body({"sizeLimit": {"aKey": "x"}})
    before = copy.deepcopy(resource)
    watch = replace(WATCH, mark_unsafe=True, vars={"a": 1})

    extra_vars(resource, watch, cleanup=True)

    assert resource == before


def test_a_field_that_is_left_out_is_in_the_resource_alone() -> None:
    """The whole resource and its spec keep the field; a variable of that name is not passed."""
    resource = body({"ansibleHost": "db", "size": 3})

    variables = extra_vars(resource, WATCH, cleanup=False, excluded={"ansibleHost"})

    assert "ansible_host" not in variables
    assert variables["size"] == 3
    assert variables[OBJECT] == resource
    assert variables[f"{OBJECT}_spec"] == {"ansibleHost": "db", "size": 3}


@pytest.mark.parametrize("mark_unsafe", [False, True])
def test_a_map_with_a_type_tag_as_key_is_marked_as_a_map(mark_unsafe: bool) -> None:
    """Wherever it is, and whatever spelling becomes the tag in snake case."""
    watch = replace(WATCH, mark_unsafe=mark_unsafe)
    resource = body({"a": [{"__ansibleUnsafe": "x"}], "b": {"__ansible_type": 1, "c": 2}})
    resource["metadata"]["annotations"] = {"__ansible_vault": "x"}

    variables = extra_vars(resource, watch, cleanup=False)

    assert isinstance(variables["a"][0], PlainMap)
    assert isinstance(variables["b"], PlainMap)
    assert isinstance(variables[OBJECT]["metadata"]["annotations"], PlainMap)
    assert not isinstance(variables[OBJECT]["metadata"], PlainMap)


def test_a_name_that_is_a_template_is_marked() -> None:
    """Objects of some kinds may have any name; those of most have the form that they had."""
    resource = body({})
    resource["metadata"]["name"] = "{{ x }}"

    meta = extra_vars(resource, replace(WATCH, mark_unsafe=True), cleanup=False)[
        "ansible_operator_meta"
    ]

    assert meta == {"namespace": "shop", "name": {"__ansible_unsafe": "{{ x }}"}}
