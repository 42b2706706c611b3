"""The files that the fork server prepares: those of roles with runs, and of the roles they name."""

from __future__ import annotations

from pathlib import Path

import pytest

from operator_runner.ansible.forkserver.compiled_templates import RoleFile, RoleFiles
from tests.support.timestamps import wait_for_new_timestamp


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Write a playbook, its roles, and a role in another folder."""
    texts = {
        "site.yml": "- hosts: all\n  roles: [web]\n",
        "plays/by_path.yml": "- hosts: all\n  roles:\n  - ../roles/web\n",
        "tasks/own.yml": "- debug:\n",
        "roles/web/tasks/main.yml": "- include_role: {name: '{{ item }}'}\n  loop: [database]\n",
        "roles/web/meta/main.yml": "dependencies: [{role: common}]\n",
        "roles/web/templates/tasks/a.yml": "{{ x }}: [",
        "roles/web/files/a.yml": "a: 1\n",
        "roles/database/tasks/main.yml": "- import_role: {name: web}\n",
        "roles/other/tasks/main.yml": "- debug:\n",
        "shared/common/defaults/main.yml": "a: b\r\n",
        "shared/common/defaults/out.yml": f"written_by_runs: {tmp_path}/out\n",
        "out/tasks/main.yml": "- debug:\n",
    }
    for name, text in texts.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    return tmp_path


class Prepared:
    """The files that have been prepared since they were asked for."""

    def __init__(self, project: Path) -> None:
        self._project = project
        self._met: list[RoleFile] = []
        self.files = RoleFiles([self._met.append], [project / "shared", project / "missing"])

    def after(self, content: str, *used: str) -> dict[str, RoleFile]:
        self.files.note(self._project / content, [self._project / role for role in used])
        while self.files.is_pending:
            self.files.step()
        met = {str(file.path.relative_to(self._project)): file for file in self._met}
        assert len(met) == len(self._met), "a file was prepared twice"
        self._met.clear()
        return met


WEB = {"roles/web/tasks/main.yml", "roles/web/meta/main.yml", "roles/web/templates/tasks/a.yml"}
NAMED = {
    "roles/database/tasks/main.yml",
    "shared/common/defaults/main.yml",
    "shared/common/defaults/out.yml",
}


@pytest.mark.parametrize(
    ("content", "own"),
    [
        ("site.yml", {"site.yml", "tasks/own.yml"}),
        ("plays/by_path.yml", {"plays/by_path.yml"}),
        ("roles/web", set()),
    ],
)
def test_roles_that_are_named_are_prepared_too(project: Path, content: str, own: set[str]) -> None:
    """By a playbook, a task, its loop or a dependency; beside the role or in the search path.

    Files that runs may have written are not read.
    """
    assert Prepared(project).after(content).keys() == own | WEB | NAMED


def test_a_role_with_a_computed_name_is_prepared_if_it_was_used(project: Path) -> None:
    """Not the other versions, nor what no name in a file can be."""
    for version in ("v1", "v2"):
        tasks = project / "roles" / version / "deploy" / "tasks" / "main.yml"
        tasks.parent.mkdir(parents=True)
        tasks.write_text("- debug:\n")
    include = "- hosts: all\n  tasks:\n  - include_role: {name: '{{ version }}/deploy'}\n"
    (project / "versions.yml").write_text(include)
    prepared = Prepared(project)
    assert "versions.yml" in prepared.after("versions.yml")
    used = ("roles/v2/deploy", "roles/other", "out", "roles/../out")
    assert prepared.after("versions.yml", *used).keys() == {"roles/v2/deploy/tasks/main.yml"}
    assert not prepared.after("versions.yml")


def test_a_file_is_read_as_it_is(project: Path) -> None:
    """A file below templates is not parsed as YAML; line ends are kept."""
    files = Prepared(project).after("roles/web")
    template = files["roles/web/templates/tasks/a.yml"]
    assert (template.is_template, template.text, template.documents) == (True, "{{ x }}: [", ())
    defaults = files["shared/common/defaults/main.yml"]
    expected = (False, "a: b\r\n", [{"a": "b"}])
    assert (defaults.is_template, defaults.text, defaults.documents) == expected


def test_only_changed_files_are_prepared_again(project: Path) -> None:
    """Also those of a role that another one names; roles may name each other."""
    prepared = Prepared(project)
    prepared.after("site.yml")
    assert not prepared.after("site.yml")
    wait_for_new_timestamp(project)
    (project / "roles/database/tasks/main.yml").write_text("- include_role: {name: other}\n")
    expected = {"roles/database/tasks/main.yml", "roles/other/tasks/main.yml"}
    assert prepared.after("site.yml").keys() == expected


@pytest.mark.parametrize("content", [b"a: [", b"\xff\xfe", b"a: &a ['database', *a]"])
def test_broken_files_are_left_out(project: Path, content: bytes) -> None:
    """The play that reads them reports them; other files are prepared, and cycles end."""
    (project / "roles/web/tasks/main.yml").write_bytes(content)
    (project / "roles/web/vars").mkdir()
    (project / "roles/web/vars/link.yml").symlink_to("missing")
    assert Prepared(project).after("roles/web").keys() >= {"roles/web/meta/main.yml"}


def test_nothing_is_done_without_preparations(project: Path) -> None:
    """All patches that need the files may be switched off."""
    files = RoleFiles([])
    files.note(project / "roles/web")
    assert not files.is_pending
