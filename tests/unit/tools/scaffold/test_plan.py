"""What `init` and `create api` write, as paths and texts."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from operator_runner.core.errors import ConfigError
from operator_runner.tools.scaffold import project_file
from operator_runner.tools.scaffold.fields import parse_fields
from operator_runner.tools.scaffold.plan import ApiPlan, plan_api, plan_init

KIND = "Memcached"


@pytest.fixture
def project() -> dict[str, str]:
    """Return the files of a new project."""
    return plan_init(project_file.project("cache-operator", "example.com"))


def new_api(
    kind: str = KIND, version: str = "v1alpha1", group: str = "cache", **how: Any
) -> ApiPlan:
    return ApiPlan(project_file.api(group, version, kind), **how)


def watches(files: dict[str, str]) -> list[dict[str, Any]]:
    return list(yaml.safe_load(files["watches.yaml"]))


def test_every_text_is_complete_yaml(project: dict[str, str]) -> None:
    """All manifests and playbooks parse, and no place holder is left in any file or path."""
    files = project | plan_api(project, new_api(role=True, playbook=True))
    for path, text in files.items():
        assert "[[" not in path + text
        assert "{" not in path
        assert "[%" not in text
        if path.endswith((".yaml", ".yml")) or path == "PROJECT":
            list(yaml.safe_load_all(text))


def test_project_is_one_that_operator_sdk_reads(project: dict[str, str]) -> None:
    """PROJECT names the layout and plugins of operator-sdk, and each kind."""
    files = plan_api(project, new_api())
    assert yaml.safe_load(files["PROJECT"]) == {
        "domain": "example.com",
        "layout": ["ansible.sdk.operatorframework.io/v1"],
        "plugins": {
            "manifests.sdk.operatorframework.io/v2": {},
            "scorecard.sdk.operatorframework.io/v2": {},
        },
        "projectName": "cache-operator",
        "resources": [
            {
                "api": {"crdVersion": "v1", "namespaced": True},
                "domain": "example.com",
                "group": "cache",
                "kind": "Memcached",
                "version": "v1alpha1",
            }
        ],
        "version": "3",
    }


def test_a_kind_has_its_usual_files(project: dict[str, str]) -> None:
    """A kind has a CRD, three roles for users, a sample and tests, under the usual paths."""
    assert set(plan_api(project, new_api())) == {
        "PROJECT",
        "watches.yaml",
        "config/crd/bases/cache.example.com_memcacheds.yaml",
        "config/crd/kustomization.yaml",
        "config/rbac/kustomization.yaml",
        "config/rbac/memcached_admin_role.yaml",
        "config/rbac/memcached_editor_role.yaml",
        "config/rbac/memcached_viewer_role.yaml",
        "config/rbac/role.yaml",
        "config/samples/cache_v1alpha1_memcached.yaml",
        "config/samples/kustomization.yaml",
        "docs/memcached.md",
        "molecule/default/tasks/memcached_test.yml",
        "tests/test_memcached.py",
    }


def test_a_role_and_a_playbook_have_their_usual_files(project: dict[str, str]) -> None:
    """A role has all of its usual directories, a playbook beside it imports it."""
    plain = set(plan_api(project, new_api()))
    files = plan_api(project, new_api(role=True, playbook=True))
    assert set(files) - plain == {
        "playbooks/memcached.yml",
        "roles/memcached/README.md",
        "roles/memcached/tasks/main.yml",
        "roles/memcached/defaults/main.yml",
        "roles/memcached/vars/main.yml",
        "roles/memcached/handlers/main.yml",
        "roles/memcached/meta/main.yml",
        "roles/memcached/files/.placeholder",
        "roles/memcached/templates/.placeholder",
    }
    (play,) = yaml.safe_load(files["playbooks/memcached.yml"])
    assert play["tasks"][0]["ansible.builtin.import_role"] == {"name": "memcached"}


def test_one_list_of_fields_gives_all_files(project: dict[str, str]) -> None:
    """CRD, sample and argument spec have the same fields."""
    fields = parse_fields(["size:integer=3", "siteTitle:string!", "words:string=a|b"])
    files = plan_api(project, new_api(role=True, fields=fields))
    crd = yaml.safe_load(files["config/crd/bases/cache.example.com_memcacheds.yaml"])
    (version,) = crd["spec"]["versions"]
    assert version["schema"]["openAPIV3Schema"]["required"] == ["spec"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert spec["required"] == ["siteTitle"]
    assert spec["properties"]["size"] == {"type": "integer", "default": 3}
    assert [column["name"] for column in version["additionalPrinterColumns"]] == [
        "Size", "SiteTitle", "Words", "Ready", "Failed", "Message", "Suspended", "Age",
    ]  # fmt: skip
    sample = yaml.safe_load(files["config/samples/cache_v1alpha1_memcached.yaml"])
    assert sample["spec"] == {"size": 3, "siteTitle": "example", "words": "a|b"}
    specs = yaml.safe_load(files["roles/memcached/meta/argument_specs.yml"])["argument_specs"]
    assert specs["main"]["options"] == {
        "size": {"type": "int", "default": 3},
        "site_title": {"type": "str", "required": True},
        "words": {"type": "str", "default": "a|b"},
    }


@pytest.mark.parametrize(
    ("how", "serves"),
    [
        ({"role": True}, {"role": "memcached", "apply": "server-side", "gatherFacts": False}),
        ({"playbook": True}, {"playbook": "playbooks/memcached.yml"}),
        ({"role": True, "playbook": True}, {"playbook": "playbooks/memcached.yml"}),
    ],
)
def test_the_watch_names_the_generated_files(
    project: dict[str, str], how: dict[str, Any], serves: dict[str, str]
) -> None:
    """It names the generated files, the playbook if there are both, and has the best settings."""
    (entry,) = watches(plan_api(project, new_api(**how)))
    gvk = {"version": "v1alpha1", "group": "cache.example.com", "kind": "Memcached"}
    safe = {"profile": "strict", "timeout": "10m", "prune": True}
    assert entry == gvk | serves | safe


def test_further_kinds_are_added_and_edits_kept(project: dict[str, str]) -> None:
    """A second kind is added to files that the user has edited."""
    files = project | plan_api(project, new_api(role=True))
    mine = "  reconcilePeriod: 5m # for the demo\n"
    files["watches.yaml"] = files["watches.yaml"].replace(
        "  role: memcached\n", "  role: memcached\n" + mine
    )
    files |= plan_api(files, new_api("Proxy", role=True))
    assert mine in files["watches.yaml"]
    assert [entry["kind"] for entry in watches(files)] == ["Memcached", "Proxy"]
    rules = yaml.safe_load(files["config/rbac/role.yaml"])["rules"]
    assert rules[-1]["resources"] == ["proxies", "proxies/status", "proxies/finalizers"]
    assert yaml.safe_load(files["config/crd/kustomization.yaml"])["resources"] == [
        "bases/cache.example.com_memcacheds.yaml",
        "bases/cache.example.com_proxies.yaml",
    ]


def test_equal_kinds_of_two_groups_are_distinguished(project: dict[str, str]) -> None:
    """The user roles of the second Memcached have its group in their names."""
    files = project | plan_api(project, new_api())
    more = plan_api(files, new_api(group="other"))
    viewer = yaml.safe_load(more["config/rbac/other_memcached_viewer_role.yaml"])
    assert viewer["metadata"]["name"] == "other-memcached-viewer-role"


def test_an_irregular_plural_is_kept(project: dict[str, str]) -> None:
    """PROJECT has the plural where it does not follow from the kind."""
    files = plan_api(project, ApiPlan(project_file.api("cache", "v1", "Index", "indices")))
    assert yaml.safe_load(files["PROJECT"])["resources"][0]["plural"] == "indices"
    assert "config/crd/bases/cache.example.com_indices.yaml" in files


@pytest.mark.parametrize(
    ("again", "problem"),
    [
        (new_api(), "--kind Memcached: PROJECT has cache.example.com/v1alpha1 Memcached already"),
        (new_api(version="v1"), "--version v1: PROJECT has Memcached in v1alpha1. Add the version"),
    ],
)
def test_a_kind_that_is_there_is_refused(
    project: dict[str, str], again: ApiPlan, problem: str
) -> None:
    """The same kind is not created twice; the error for a further version refers to the CRD."""
    files = project | plan_api(project, new_api())
    with pytest.raises(ConfigError, match=problem):
        plan_api(files, again)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "PROJECT: no such file; create it with `operator-runner init`"),
        ("a: [", "PROJECT: invalid YAML"),
        ("[]", "PROJECT: expected a mapping"),
        ("domain: a.b\n", "PROJECT: invalid `projectName` or `domain`"),
        (
            "domain: a.b\nprojectName: a\nlayout: [go.kubebuilder.io/v4]\n",
            "PROJECT: unsupported `layout` .*: expected ansible.sdk",
        ),
    ],
)
def test_a_directory_without_a_valid_project_is_an_error(
    project: dict[str, str], text: str | None, problem: str
) -> None:
    """The error has the file PROJECT and the reason."""
    files = {path: body for path, body in project.items() if path != "PROJECT"}
    if text is not None:
        files["PROJECT"] = text
    with pytest.raises(ConfigError, match=problem):
        plan_api(files, new_api())
