"""Requests of a reconcile beside those of its role."""

from __future__ import annotations

from bench.traffic import beside, listed


def test_requests_of_the_role_are_left_out() -> None:
    """Only what the operator adds is left, also where the role has requests of the same kind."""
    role = {"GET configmaps": 2.0, "GET threes": 1.0}
    found = beside({"GET configmaps": 2.0, "GET threes": 5.0, "PUT threes": 2.0}, role)
    assert listed(found) == "4 GET threes, 2 PUT threes"


def test_reads_from_a_cache_do_not_make_up_for_other_requests() -> None:
    """An operator that answers reads of the role itself has its own requests all the same."""
    found = beside({"GET threes": 4.0}, {"GET configmaps": 2.0, "GET services": 1.0})
    assert sum(found.values()) == 4
    assert listed(beside({}, {"GET configmaps": 2.0})) == "none"
