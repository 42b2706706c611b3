"""Which files of a project concern a watch (--reload)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from operator_runner.controller.sources.project_watcher import (
    changed_file,
    own_paths,
    related_paths,
)
from operator_runner.core.model import GVK, Deselection, Finalizer, RunContent, Watch

FOO = GVK("example.com", "v1", "Foo")


def test_a_changed_file_is_found() -> None:
    """A file that was added, removed or modified; the first of several."""
    a, b = Path("a"), Path("b")
    assert changed_file({a: 1, b: 1}, {a: 1, b: 1}) is None
    assert changed_file({a: 1, b: 1}, {a: 1, b: 2}) == b
    assert changed_file({a: 1}, {a: 1, b: 2}) == b
    assert changed_file({a: 1, b: 1}, {}) == a


def test_roles_belong_to_their_playbook() -> None:
    """Those beside it, and those of a project that keeps its playbooks in a folder."""
    playbook = RunContent(playbook=Path("/project/playbooks/a.yml"))
    assert [*own_paths(playbook)] == [
        Path("/project/playbooks/a.yml"),
        Path("/project/playbooks/roles"),
        Path("/project/roles"),
    ]
    beside = RunContent(playbook=Path("/project/a.yml"))
    assert [*own_paths(beside)] == [Path("/project/a.yml"), Path("/project/roles")]
    role = RunContent(role=Path("/project/roles/a"))
    assert [*own_paths(role)] == [Path("/project/roles/a")]


def test_files_that_a_play_may_load_are_related() -> None:
    """The other roles, the directories beside a playbook, the content of the finalizer."""
    roles = Path("/project/roles")
    role = Watch(FOO, RunContent(role=roles / "a"))
    assert list(related_paths(role)) == [roles]
    cleanup = Finalizer("example.com/b", RunContent(role=Path("/elsewhere/b")))
    assert list(related_paths(Watch(FOO, RunContent(role=roles / "a"), finalizer=cleanup))) == [
        roles,
        Path("/elsewhere/b"),
    ]
    deselection = Deselection("example.com/c", RunContent(role=Path("/elsewhere/c")))
    assert Path("/elsewhere/c") in related_paths(replace(role, deselection=deselection))
    playbook = Watch(FOO, RunContent(playbook=Path("/project/playbooks/a.yml")))
    related = set(related_paths(playbook))
    assert {Path("/project/playbooks/roles"), Path("/project/playbooks/tasks")} <= related
    assert Path("/project") not in related


def test_the_directory_of_a_single_role_is_not_scanned() -> None:
    """It may be a home directory."""
    assert list(related_paths(Watch(FOO, RunContent(role=Path("/home/me/wiki"))))) == []
