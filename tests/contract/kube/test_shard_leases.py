"""Leases of shards on a real API server: nothing is written by an outdated view of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from operator_runner.controller.sharding import Sharding, SlotEvents
from operator_runner.core.errors import Fenced
from operator_runner.core.fencing import Fence
from operator_runner.core.settings import LeaderElection
from operator_runner.core.slot_assignment import (
    SLOTS,
    Assignment,
    BackoffState,
    MemberReport,
    encode_assignment,
    encode_report,
)
from operator_runner.kube.api import Api
from operator_runner.kube.discovery import Discovery
from operator_runner.kube.leader_election import LeaderElector
from operator_runner.kube.membership import Membership
from operator_runner.kube.session import Connection
from operator_runner.kube.shard_leases import ASSIGNMENT, LABEL, REPORT, ShardLeases
from tests.contract.kube.waiting import until
from tests.support.kubectl import Json, Kubectl

ELECTION = LeaderElection(
    enabled=True,
    lease_name="web",
    lease_duration=timedelta(seconds=60),
    renew_deadline=timedelta(seconds=40),
)
A = "pod-a_0001"


@pytest.fixture
async def leases(connection: Connection, namespace: str) -> AsyncIterator[ShardLeases]:
    """Watch the Leases of shards."""
    api = Api(connection)
    made = ShardLeases(api, Discovery(api), ELECTION, namespace)
    watching = asyncio.create_task(made.watch(lambda: None))
    yield made
    watching.cancel()
    await asyncio.wait([watching])


@pytest.fixture
async def member(connection: Connection, namespace: str) -> AsyncIterator[Membership]:
    """Join the shards."""
    made = Membership(Api(connection), ELECTION, namespace, A)
    await made.join(lambda: MemberReport("uid", 3, frozenset({1, 2})))
    yield made
    await made.leave()


async def test_a_member_is_seen_with_its_report(leases: ShardLeases, member: Membership) -> None:
    """Until it leaves."""

    async def is_seen() -> bool:
        return A in leases.members

    async def is_gone() -> bool:
        return not leases.members

    await until(is_seen)
    assert leases.members[A].name == member.name == "web-0001"
    assert leases.members[A].report == MemberReport("uid", 3, frozenset({1, 2}))
    assert leases.members[A].duration == 60
    assert not await leases.is_gone(A)

    await member.leave()

    await until(is_gone)
    assert await leases.is_gone(A)


async def test_a_member_that_was_renewed_is_not_expelled(
    leases: ShardLeases, member: Membership, kubectl: Kubectl
) -> None:
    """The coordinator may have seen an old version."""

    async def is_seen() -> bool:
        return A in leases.members

    await until(is_seen)
    kubectl("annotate", "lease", member.name, "renewed=yes")

    assert not await leases.expel(A)
    assert not await leases.is_gone(A)


async def test_an_expelled_member_writes_nothing_and_does_not_return(
    leases: ShardLeases, member: Membership
) -> None:
    """Its next renewal would create the Lease otherwise."""

    async def expelled() -> bool:
        return A in leases.members and await leases.expel(A)

    fence = Fence(member.term)
    fence.check()
    await until(expelled)
    member.report_soon()
    await asyncio.wait_for(member.lost(), 60)

    with pytest.raises(Fenced):
        fence.check()
    assert await leases.is_gone(A)


async def test_an_assignment_by_an_outdated_view_is_not_published(
    leases: ShardLeases, kubectl: Kubectl
) -> None:
    """A coordinator that was frozen finds that another one has written."""

    async def is_listed() -> bool:
        return leases.is_missing

    async def is_seen() -> bool:
        return leases.assignment is not None

    async def is_published() -> bool:
        return leases.assignment == second

    await until(is_listed)
    await leases.create(A)
    await until(is_seen)
    created = leases.assignment
    assert created is not None
    assert created.epoch == 0
    second = Assignment(created.uid, 1, {0: A})
    kubectl("annotate", "lease", "web-shards", "touched=yes")
    assert not await leases.publish(second, A)

    async def publish() -> bool:
        return await leases.publish(second, A)

    await until(publish)
    await until(is_published)


async def test_an_edited_assignment_is_invalid(leases: ShardLeases, kubectl: Kubectl) -> None:
    """Members drain until the Lease is deleted."""

    async def is_listed() -> bool:
        return leases.is_missing

    async def is_seen() -> bool:
        return leases.assignment is not None

    async def is_invalid() -> bool:
        return leases.assignment is None

    await until(is_listed)
    await leases.create(A)
    await until(is_seen)
    kubectl(
        "annotate", "lease", "web-shards", "--overwrite", "operator-runner.dev/shard-assignment={}"
    )

    await until(is_invalid)
    assert not leases.is_missing


async def test_the_backoff_of_a_member_that_leaves_is_observed(
    connection: Connection, leases: ShardLeases, namespace: str
) -> None:
    """Its Lease is deleted at once: what was not written yet is written before that."""
    states: dict[str, BackoffState] = {}
    made = Membership(Api(connection), ELECTION, namespace, A)
    await made.join(MemberReport, lambda: states)

    async def is_seen() -> bool:
        return A in leases.members

    async def is_gone() -> bool:
        return not leases.members

    await until(is_seen)
    assert leases.handed_over == {}
    states["uid"] = BackoffState(failures=3)
    await made.leave()

    await until(is_gone)
    assert leases.handed_over == states


def lease(name: str, holder: str, seconds: int, annotations: dict[str, str]) -> Json:
    """Return a Lease of the shards that nobody renews."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "labels": {LABEL: "web"}, "annotations": annotations},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": seconds},
    }


async def test_a_member_is_replaced_while_the_coordinator_has_failed_too(
    connection: Connection, namespace: str, kubectl: Kubectl
) -> None:
    """The Lease of the coordinator expires much later than that of the member."""
    owned = Assignment("", 1, dict.fromkeys(range(SLOTS), A))
    kubectl.apply(
        lease("web", "pod-c_0003", 3600, {}),
        lease("web-shards", "pod-c_0003", 3600, {ASSIGNMENT: encode_assignment(owned)}),
        lease(
            "web-0001", A, 1, {REPORT: encode_report(MemberReport("", 1, frozenset(range(SLOTS))))}
        ),
    )
    api = Api(connection)
    leases = ShardLeases(api, Discovery(api), ELECTION, namespace)
    elector = LeaderElector(api, ELECTION, namespace)
    gained: set[int] = set()
    coordinating: list[bool] = []
    sharding = Sharding(
        elector,
        Membership(api, ELECTION, namespace, elector.identity),
        leases,
        limit=None,
        grace=60.0,
        events=SlotEvents(
            gained=lambda slots, _: gained.update(slots),
            released=lambda _: {},
            counted=lambda *_: None,
            coordinating=coordinating.append,
        ),
    )
    await sharding.join()
    tasks = [asyncio.create_task(sharding.run()), asyncio.create_task(sharding.coordinate())]

    async def has_all_slots() -> bool:
        return len(gained) == SLOTS

    await until(has_all_slots)

    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert not any(coordinating)
    assert await leases.is_gone(A)
    await sharding.leave()
