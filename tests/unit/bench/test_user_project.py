"""Projects of users: what is read, and which file and field an error names."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from bench.errors import BenchError
from bench.user_project import parse_edit, read_project

_GROUP, _KIND = "shop.example.com", "Web"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project with a role, a CRD, a manifest and a sample."""
    watch = {"group": _GROUP, "version": "v1", "kind": _KIND, "role": "/opt/ansible/roles/web"}
    other = {**watch, "kind": "Backup"}
    version = {"name": "v1", "served": True, "storage": True}
    spec = {"group": _GROUP, "names": {"kind": _KIND}, "versions": [version], "conversion": {}}
    container = {"env": [{"name": "COLOR", "value": "red"}, {"name": "HOME", "value": "/"}]}
    pod = {"spec": {"containers": [container]}}
    files = {
        "watches.yaml": [{**watch, "reconcilePeriod": "1m"}, other],
        "roles/web/tasks/main.yml": [{"include_tasks": "/opt/ansible/roles/web/tasks/b.yml"}],
        "config/crd/web.yaml": {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "webs"},
            "spec": spec,
        },
        "config/manager/manager.yaml": {"kind": "Deployment", "spec": {"template": pod}},
        "sample.yaml": {
            "apiVersion": f"{_GROUP}/v1",
            "kind": _KIND,
            "metadata": {"name": "a"},
        },
    }
    for name, content in files.items():
        file = tmp_path / "project" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(yaml.safe_dump(content))
    return tmp_path / "project"


def test_objects_that_have_to_exist_are_read(project: Path) -> None:
    """All documents of all files; a file that is missing is named."""
    first, second = project / "a.yaml", project / "b.yaml"
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}}
    first.write_text(f"---\n{yaml.safe_dump(account)}---\n{yaml.safe_dump(account)}")
    second.write_text(yaml.safe_dump(account))
    found = read_project(project, project / "sample.yaml", create=[first, second])
    assert found.objects == (account,) * 3
    with pytest.raises(BenchError, match=r"c\.yaml: No such file"):
        read_project(project, project / "sample.yaml", create=[project / "c.yaml"])


def test_a_project_is_copied_with_the_watch_of_the_resource(project: Path, tmp_path: Path) -> None:
    """Without its period, and with the copy's paths instead of those of the image."""
    found = read_project(project, project / "sample.yaml")
    found.copy_to(copy := tmp_path / "copy")
    assert yaml.safe_load((copy / "watches.yaml").read_text()) == [
        {
            "group": _GROUP,
            "version": "v1",
            "kind": _KIND,
            "role": f"{copy}/roles/web",
            "watchAnnotationsChanges": True,
        }
    ]
    assert str(copy) in (copy / "roles/web/tasks/main.yml").read_text()
    assert found.environment == {"COLOR": "red"}
    assert "conversion" not in found.definitions[0]["spec"]


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("sample.yaml", "kind: Web", "sample.yaml: apiVersion: missing; add it"),
        ("sample.yaml", "a: [", "sample.yaml: invalid YAML"),
        ("sample.yaml", "", "sample.yaml: 0 resources; --resource needs a file with one"),
        ("watches.yaml", "[]", "watches.yaml: no entry has kind Web of shop.example.com/v1"),
        ("config/crd/web.yaml", "", "no CRD of Web .* name it with --crd"),
        (
            "config/crd/web.yaml",
            "{kind: CustomResourceDefinition, apiVersion: apiextensions.k8s.io/v1beta1}",
            "web.yaml: apiVersion: apiextensions.k8s.io/v1beta1 is not served any more; convert",
        ),
    ],
)
def test_an_error_names_file_field_and_cure(
    project: Path, name: str, content: str, error: str
) -> None:
    """Before anything is started."""
    (project / name).write_text(content)
    with pytest.raises(BenchError, match=error):
        read_project(project, project / "sample.yaml")


def test_a_file_that_does_not_exist_is_named(project: Path) -> None:
    """The resource, and a CRD."""
    with pytest.raises(BenchError, match=r"missing\.yaml: No such file"):
        read_project(project, project / "missing.yaml")
    with pytest.raises(BenchError, match=r"--crd .*missing: no such file"):
        read_project(project, project / "sample.yaml", [project / "missing"])


def test_an_edit_is_a_patch_of_one_field() -> None:
    """Its value is YAML."""
    edit = parse_edit("spec.size.max=3")
    assert edit.patch(edit.value) == {"spec": {"size": {"max": 3}}}
    assert edit.value_in({"spec": {"size": {"max": 2}}}) == 2
    assert edit.value_in({"spec": {}}) is None
    for text in ("spec.size", "size=3", "spec..size=3"):
        with pytest.raises(BenchError, match="write FIELD=VALUE"):
            parse_edit(text)
