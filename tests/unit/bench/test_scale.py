"""How random faults of replicas are judged."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from bench.scale.chaos import TAKEOVER_SECONDS, Failure, Result, Takeover, handovers, takeovers
from tests.support.audit_log import Write


def takeover(seconds: float) -> Takeover:
    return Takeover(Failure("kill", "a", datetime(2026, 1, 1, tzinfo=UTC)), seconds, ())


GOOD = Result(10, (), 40, 3, (), (takeover(TAKEOVER_SECONDS),), Counter(kill=1))


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
    assert not replace(GOOD, takeovers=(takeover(TAKEOVER_SECONDS + 0.1),)).is_good


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
    found = [*takeovers(failures, {"a": after(111), "b": after(17)})]
    assert [each.seconds for each in found] == [11.0, 12.0]


def test_a_takeover_names_the_other_faults_before_it() -> None:
    """Those since a lease duration before the failure; a termination of the member is not one."""
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    failures = [
        Failure(fault, member, begin + timedelta(seconds=seconds))
        for fault, member, seconds in (
            ("kill", "early", 0),
            ("cut the network", "b", 95),
            ("kill", "a", 100),
            ("terminate", "a", 101),
            ("terminate", "c", 104),
            ("kill", "late", 120),
        )
    ]
    (found,) = takeovers(failures, {"a": begin + timedelta(seconds=112)})
    assert str(found) == (
        "kill a: removed after 12.0 s; cut the network b at -5.0 s, terminate c at +4.0 s"
    )
