"""How random faults of replicas are judged."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from bench.scale.chaos import TAKEOVER_SECONDS, Failure, Result, handovers, takeovers
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


def test_a_takeover_is_measured_from_the_last_failure_before_it() -> None:
    """A short freeze is survived, and another fault may follow the removal."""
    begin = datetime(2026, 1, 1, tzinfo=UTC)

    def after(seconds: int) -> datetime:
        return begin + timedelta(seconds=seconds)

    failures = [
        Failure("freeze", "a", after(0)),
        Failure("kill", "a", after(100)),
        Failure("cut the network", "b", after(5)),
        Failure("kill", "b", after(30)),
        Failure("kill", "c", after(40)),
    ]
    assert [*takeovers(failures, {"a": after(111), "b": after(17)})] == [11.0, 12.0]
