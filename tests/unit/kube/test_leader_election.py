"""The election's rules about time and holders."""

from __future__ import annotations

import pytest

from operator_runner.kube.leader_election import ObservedLease
from operator_runner.kube.lease_keeper import claimed_spec

HELD = {"holderIdentity": "other", "leaseDurationSeconds": 15, "leaseTransitions": 3}


def test_a_lease_expires_after_its_last_observed_change() -> None:
    """The times in the Lease play no role: clocks differ between hosts."""
    observed = ObservedLease({}, 0.0)
    observed.update({**HELD, "renewTime": "1999-01-01T00:00:00.000000Z"}, 100.0)

    assert observed.held_by_other("me", 114.9)
    assert not observed.held_by_other("me", 115.0)


def test_a_lease_that_does_not_change_expires() -> None:
    """Reading the same Lease again is not a renewal; a renewal restarts the duration."""
    observed = ObservedLease({}, 0.0)
    observed.update({**HELD, "renewTime": "a"}, 100.0)
    observed.update({**HELD, "renewTime": "a"}, 110.0)
    assert not observed.held_by_other("me", 115.0)

    observed.update({**HELD, "renewTime": "b"}, 114.0)
    assert observed.held_by_other("me", 115.0)
    assert observed.expiry == 129.0


@pytest.mark.parametrize("holder", ["", None, "me"])
def test_a_free_lease_and_our_own_are_not_held_by_another(holder: str | None) -> None:
    """A released Lease has an empty holder, and may be taken at once."""
    assert not ObservedLease({**HELD, "holderIdentity": holder}, 0.0).held_by_other("me", 1.0)


def test_a_takeover_is_counted_and_a_renewal_is_not() -> None:
    """AcquireTime and the count of transitions belong to the term of a holder."""
    taken = claimed_spec(HELD, "me", 20)
    assert (taken["leaseTransitions"], taken["leaseDurationSeconds"]) == (4, 20)
    assert taken["acquireTime"] == taken["renewTime"]

    renewed = claimed_spec({**taken, "acquireTime": "then"}, "me", 20)
    assert (renewed["leaseTransitions"], renewed["acquireTime"]) == (4, "then")


def test_the_first_holder_of_a_new_lease_is_not_a_transition() -> None:
    """The count starts at zero."""
    assert claimed_spec({}, "me", 15)["leaseTransitions"] == 0
