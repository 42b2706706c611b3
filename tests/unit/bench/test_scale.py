"""How random faults of replicas are judged."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from bench.scale.chaos import TAKEOVER_SECONDS, Result, handovers
from tests.support.audit_log import Write

GOOD = Result(10, (), 40, 3, (), (TAKEOVER_SECONDS,), Counter(kill=1))


def write(account: str, name: str, received: int) -> Write:
    return Write(account, "patch", "configmaps", name, f"{received:02}", f"{received + 1:02}")


def test_changes_of_the_writer_are_found_for_each_resource() -> None:
    """Two resources with different writers are not a handover."""
    writes = [
        write("a", "one", 0),
        write("b", "two", 1),
        write("b", "one", 2),
        write("b", "one", 4),
    ]
    assert list(handovers(writes)) == [(writes[0], writes[2])]


def test_each_fault_of_a_result_is_a_failure() -> None:
    """Lost edits, writes of two replicas at once, and late takeovers."""
    assert GOOD.is_good
    assert not replace(GOOD, unreconciled=("echo-1",)).is_good
    assert not replace(GOOD, overlaps=("a b",)).is_good
    assert not replace(GOOD, takeovers=(1.0, TAKEOVER_SECONDS + 0.1)).is_good
