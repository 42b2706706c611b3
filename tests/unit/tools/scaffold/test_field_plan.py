"""What `create field` changes in a project that people have edited."""

from __future__ import annotations

import difflib
from typing import Any

import pytest
import yaml

from operator_runner.core.errors import ConfigError
from operator_runner.tools.scaffold import project_file
from operator_runner.tools.scaffold.field_plan import FieldPlan, find_kind, paths_of, plan_fields
from operator_runner.tools.scaffold.fields import parse_fields
from operator_runner.tools.scaffold.plan import ApiPlan, plan_api, plan_init

CRD = "config/crd/bases/shop.example.com_wikis.yaml"
SAMPLE = "config/samples/shop_v1_wiki.yaml"
SPECS = "roles/wiki/meta/argument_specs.yml"
FIELDS = ("title:string=Home", "tls.secretName:string!", "ports[].port:integer!")
EMPTY = plan_init(project_file.project("shop-operator", "example.com"))
MORE = (
    "size:integer=3,minimum=1",
    "tls.enabled:boolean=true",
    "ports[].name:string",
    "owner:string!",
)


def project(*fields: str) -> dict[str, str]:
    """Return the files of a project with a kind of these fields."""
    api = project_file.api("shop", "v1", "Wiki")
    return EMPTY | plan_api(EMPTY, ApiPlan(api, parse_fields(fields), role=True))


def add(files: dict[str, str], *fields: str) -> FieldPlan:
    api = find_kind(files["PROJECT"], "Wiki", "", "")
    return plan_fields(files, paths_of(files["PROJECT"], api), api, parse_fields(fields))


def spec_of(files: dict[str, str]) -> Any:
    (version,) = yaml.safe_load(files[CRD])["spec"]["versions"]
    return version["schema"]["openAPIV3Schema"]["properties"]["spec"]


def test_added_fields_are_those_of_create_api() -> None:
    """All files have the content that they would have had from the start."""
    plan = add(project(*FIELDS), *MORE)
    assert plan.by_hand == []
    whole = project(*FIELDS, *MORE)
    assert sorted(plan.files) == [CRD, SAMPLE, SPECS]
    for path, text in plan.files.items():
        assert yaml.safe_load(text) == yaml.safe_load(whole[path])
    again = add(project(*FIELDS) | plan.files, *MORE)
    assert (again.files, again.by_hand) == ({}, [])


def test_comments_stay_and_only_lines_of_the_fields_change() -> None:
    """Nothing is removed but the default of a spec that has become required."""
    files = project(*FIELDS)
    comment = "# Written by hand.\n"
    for path in (CRD, SAMPLE, SPECS):
        head, line, rest = files[path].partition("port")
        files[path] = comment + head + line + rest + comment
    plan = add(files, *MORE)
    for path, text in plan.files.items():
        diff = difflib.ndiff(files[path].splitlines(), text.splitlines())
        gone = [line for line in diff if line.startswith("- ")]
        assert gone == (["-               default: {}"] if path == CRD else [])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("title:integer", "field title: exists with type string; choose another name, or edit"),
        ("title:string=Page", "field title: exists with default Home"),
        ("title:string!", "field title: exists and is not required; leave out the !"),
        ("title:string,enum=a", "field title: exists without enum"),
        ("tls:string", "field tls: exists with type object"),
        ("tls.secretName:integer", "field tls.secretName: exists with type string"),
        ("ports[].port:string", "field ports[].port: exists with type integer"),
        ("ports.port:integer", "field ports: exists with type array"),
        ("siteURL:string", "variable site_url is also that of field siteUrl"),
    ],
)
def test_a_field_that_exists_otherwise_is_refused(text: str, problem: str) -> None:
    """The message has the path of the field and the file."""
    with pytest.raises(ConfigError) as caught:
        add(project(*FIELDS, "siteUrl:string"), text)
    (line,) = caught.value.problems
    assert problem in line
    assert line.endswith(f"or edit {CRD}")


def test_a_kind_without_fields_gets_its_first_ones() -> None:
    """Other fields stay possible, because resources may have them; the role gets its spec."""
    plan = add(project(), "size:integer=3")
    assert spec_of(plan.files) == {
        "description": "Desired state of the Wiki",
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
        "default": {},
        "properties": {"size": {"type": "integer", "default": 3}},
    }
    assert yaml.safe_load(plan.files[SAMPLE])["spec"] == {"size": 3}
    assert "size:\n        type: int\n" in plan.files[SPECS]


def test_lines_for_a_file_that_cannot_be_edited_are_shown() -> None:
    """The other files are written."""
    files = project(*FIELDS)
    files[SPECS] = files[SPECS].replace("options:\n      title", "options: &all\n      title")
    files[SPECS] += "  other:\n    options: *all\n"
    plan = add(files, "size:integer=3")
    assert sorted(plan.files) == [CRD, SAMPLE]
    (line,) = plan.by_hand
    assert line == (
        f"{SPECS}: cannot be edited because of its form; add to the options of `main`:\n"
        "size:\n  type: int\n  default: 3\n"
    )


def test_a_crd_without_a_schema_of_the_version_is_refused() -> None:
    """The message has the place to add one."""
    files = project(*FIELDS)
    files[CRD] = files[CRD].replace("- name: v1\n", "- name: v2\n")
    with pytest.raises(ConfigError, match="no schema of spec in version v1; add it under versions"):
        add(files, "size:integer=3")


def test_the_sample_stays_valid() -> None:
    """An object that the sample does not have may have required fields: it is left out."""
    files = project(*FIELDS)
    files[SAMPLE] = files[SAMPLE].replace("  tls:\n    secretName: example\n", "")
    plan = add(files, "tls.enabled:boolean=true", "size:integer=3")
    assert yaml.safe_load(plan.files[SAMPLE])["spec"] == {
        "title": "Home",
        "ports": [{"port": 1}],
        "size": 3,
    }


def test_a_kind_that_is_unknown_or_not_the_only_one_is_refused() -> None:
    """With the nearest kind, or the flags to add."""
    text = project()["PROJECT"]
    with pytest.raises(ConfigError, match=r"PROJECT has no such kind.*: did you mean Wiki\?"):
        find_kind(text, "Wikki", "", "")
    api = project_file.api("docs", "v1", "Wiki")
    text = project_file.add(text, api, "v1", regular_plural=True)
    with pytest.raises(ConfigError, match="add one of --group=shop --version=v1, --group=docs"):
        find_kind(text, "Wiki", "", "")
    assert find_kind(text, "Wiki", "docs", "").plural == "wikis"
