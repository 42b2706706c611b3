"""Which isolation is used with each set of kernel features, and which faults are reported."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from operator_runner.ansible.sandbox import isolation_probe
from operator_runner.ansible.sandbox.isolation import Isolation, all_except, writable_ancestor
from operator_runner.ansible.sandbox.isolation_probe import _Errors, probe_isolation

NO_MOUNTS = "unshare: Operation not permitted"
NO_LANDLOCK = "landlock_restrict_self: Operation not permitted"


NO_SCOPES = "scopes of signals take Linux 6.12"
NO_BOTH = (NO_LANDLOCK, NO_LANDLOCK)
NO_FILTER = "no filter for riscv64"
ALL = Isolation(mounts=True, processes=True, signals=True, limits=True)


@pytest.mark.parametrize(
    ("errors", "settled", "expected", "words"),
    [
        ((None, None, None, None), False, ALL, []),
        ((None, None, NO_SCOPES, None), False, replace(ALL, signals=False), ["signals", NO_SCOPES]),
        ((None, None, None, NO_FILTER), False, replace(ALL, limits=False), ["limits", NO_FILTER]),
        ((NO_MOUNTS, None, None, None), True, replace(ALL, mounts=False, paths=True), []),
        (
            (NO_MOUNTS, None, None, None),
            False,
            replace(ALL, mounts=False),
            ["--work-dir", "/above"],
        ),
        (
            (None, *NO_BOTH, None),
            True,
            Isolation(),
            [NO_LANDLOCK, "allowPrivilegeEsc"],
        ),
        (
            (NO_MOUNTS, *NO_BOTH, None),
            False,
            Isolation(),
            [NO_LANDLOCK, "Linux 5.19"],
        ),
    ],
    ids=["root", "old kernel", "no filter", "image", "work dir in /tmp", "no landlock", "nothing"],
)
def test_the_strongest_available_isolation_is_used(
    monkeypatch: pytest.MonkeyPatch,
    errors: tuple[str | None, str | None, str | None, str | None],
    settled: bool,
    expected: Isolation,
    words: list[str],
) -> None:
    """Files by mounts, else by paths; nothing without Landlock, because /proc bypasses the rest."""
    monkeypatch.setattr(isolation_probe, "_probe", lambda: _Errors(*errors))
    monkeypatch.setattr(
        isolation_probe, "writable_ancestor", lambda *_: None if settled else Path("/above")
    )
    found = probe_isolation(Path("/work"))
    assert found.isolation == expected
    assert bool(found.fault) is bool(words)
    for word in words:
        assert word in str(found.fault)


def test_a_directory_that_cannot_be_listed_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory above the work dir that cannot be listed is reported, and runs still run."""
    monkeypatch.setattr(isolation_probe, "_probe", lambda: _Errors(NO_MOUNTS, None, None, None))
    monkeypatch.setattr(isolation_probe, "writable_ancestor", lambda *_: None)
    found = probe_isolation(Path("/missing/work"))
    assert found.isolation == Isolation(processes=True, signals=True, limits=True)
    assert "/missing" in str(found.fault)


def test_exposed_credentials_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without mounts, a file in a directory that runs may write to cannot be closed to them."""
    monkeypatch.setattr(isolation_probe, "_probe", lambda: _Errors(NO_MOUNTS, None, None, None))
    open_one, closed, missing = (tmp_path / name for name in ("open", "closed", "missing/key"))
    for path in (open_one, closed):
        path.touch()
    reasons = {open_one: tmp_path}
    monkeypatch.setattr(isolation_probe, "writable_ancestor", lambda path, _: reasons.get(path))
    found = probe_isolation(tmp_path / "work", [open_one, closed, missing])
    assert found.secrets == (str(closed), str(missing))
    assert found.fault is not None
    assert f"runs can read {open_one}" in found.fault
    assert str(closed) not in found.fault
    monkeypatch.setattr(isolation_probe, "_probe", lambda: _Errors(None, None, None, None))
    with_mounts = probe_isolation(tmp_path / "work", [open_one])
    assert with_mounts.secrets == (str(open_one),)
    assert with_mounts.fault is None


def test_what_runs_cannot_write_protects_what_is_below(tmp_path: Path) -> None:
    """A directory that is protected from changes needs no other parent that protects it."""
    closed = tmp_path / "home" / "project" / "work"
    closed.mkdir(parents=True)
    assert writable_ancestor(closed) == closed.parent
    assert writable_ancestor(closed, [tmp_path]) == tmp_path.parent
    assert writable_ancestor(closed, [Path("/")]) is None


def test_all_beside_closed_paths_is_allowed(tmp_path: Path) -> None:
    """Neither closed directories nor their parents are, nor content of a closed one."""
    for name in ("a/b/closed", "a/b/beside", "a/file", "c/closed/below", "c/beside"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    closed = (tmp_path / "a/b/closed", tmp_path / "c/closed", tmp_path / "c/closed/below")
    found = {path for path in all_except(*closed) if path.startswith(f"{tmp_path}/")}
    assert found == {str(tmp_path / name) for name in ("a/b/beside", "a/file", "c/beside")}
