"""What is made of what the kernel allows: how runs are kept apart, and what is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from operator_runner.execution.isolation import finding
from operator_runner.execution.isolation.finding import find_isolation
from operator_runner.execution.isolation.isolation import Isolation

NO_MOUNTS = "unshare: Operation not permitted"
NO_LANDLOCK = "landlock_restrict_self: Operation not permitted"


@pytest.mark.parametrize(
    ("refusals", "settled", "expected", "told"),
    [
        ((None, None), False, Isolation(mounts=True, processes=True), []),
        ((NO_MOUNTS, None), True, Isolation(paths=True, processes=True), []),
        ((NO_MOUNTS, None), False, Isolation(processes=True), ["--work-dir", "/above"]),
        ((None, NO_LANDLOCK), True, Isolation(), [NO_LANDLOCK, "allowPrivilegeEscalation"]),
        ((NO_MOUNTS, NO_LANDLOCK), False, Isolation(), [NO_LANDLOCK, "Linux 5.19"]),
    ],
    ids=["root", "image", "work dir in /tmp", "no landlock", "nothing"],
)
def test_what_is_possible_is_taken(
    monkeypatch: pytest.MonkeyPatch,
    refusals: tuple[str | None, str | None],
    settled: bool,
    expected: Isolation,
    told: list[str],
) -> None:
    """Files by mounts, else by paths; without Landlock nothing, for /proc leads round the rest."""
    monkeypatch.setattr(finding, "_refusals", lambda: refusals)
    monkeypatch.setattr(finding, "unsettled", lambda _: None if settled else Path("/above"))
    found = find_isolation(Path("/work"))
    assert found.isolation == expected
    assert bool(found.fault) is bool(told)
    for word in told:
        assert word in str(found.fault)


def test_what_cannot_be_listed_cannot_be_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory above the work dir that may not be listed is told, and runs still run."""
    monkeypatch.setattr(finding, "_refusals", lambda: (NO_MOUNTS, None))
    monkeypatch.setattr(finding, "unsettled", lambda _: None)
    found = find_isolation(Path("/missing/work"))
    assert found.isolation == Isolation(processes=True)
    assert "/missing" in str(found.fault)
