"""Leader election on a real API server: there is never more than one leader, and soon one."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import yaml
from structlog.testing import capture_logs

from operator_runner.core.errors import Fenced
from operator_runner.core.fencing import Fence
from operator_runner.core.model import Json
from operator_runner.core.settings import LeaderElection
from operator_runner.kube import lease_keeper
from operator_runner.kube.api import Api
from operator_runner.kube.leader_election import LeaderElector
from operator_runner.kube.session import Connection, connect
from tests.contract.kube.scripted import kubeconfig
from tests.contract.kube.waiting import until
from tests.support.kubectl import Kubectl
from tests.support.relay import Relay

ELECTION = LeaderElection(
    enabled=True,
    lease_name="leader",
    lease_duration=timedelta(seconds=10),
    renew_deadline=timedelta(seconds=5),
)

LONG = replace(ELECTION, lease_duration=timedelta(hours=1))
"""Its Lease does not expire within a test."""
Contender = Callable[..., LeaderElector]


@pytest.fixture
async def contender(namespace: str) -> AsyncIterator[Contender]:
    """Make electors of one election; those that still run are released in the end."""
    made: list[LeaderElector] = []

    def make(connection: Connection, election: LeaderElection = ELECTION) -> LeaderElector:
        made.append(LeaderElector(Api(connection), election, namespace))
        return made[-1]

    yield make
    for elector in made:
        await elector.release()


async def _lease(kubectl: Kubectl) -> Json:
    """Return the spec of the Lease; meanwhile it has to be renewed."""
    found = await asyncio.to_thread(kubectl.get, "lease", "leader")
    assert found is not None
    return dict(found["spec"])


async def _soon(waited_for: Awaitable[None]) -> None:
    await asyncio.wait_for(waited_for, 180)


async def test_the_first_replica_acquires_the_lease(
    connection: Connection, contender: Contender, kubectl: Kubectl
) -> None:
    """The Lease names the holder in the format that other tools read."""
    first = contender(connection)

    await _soon(first.acquire())

    spec = await _lease(kubectl)
    assert spec["holderIdentity"] == first.identity
    assert (spec["leaseDurationSeconds"], spec["leaseTransitions"]) == (10, 0)
    assert datetime.fromisoformat(spec["renewTime"]) >= datetime.fromisoformat(spec["acquireTime"])


async def test_a_leader_renews_its_lease(
    connection: Connection, contender: Contender, kubectl: Kubectl
) -> None:
    """The Lease is renewed beyond its duration, and no other replica gets it."""
    first, second = contender(connection), contender(connection)
    await _soon(first.acquire())
    waiting = asyncio.create_task(second.acquire())
    acquired = datetime.fromisoformat((await _lease(kubectl))["acquireTime"])

    async def outlived() -> bool:
        renewed = datetime.fromisoformat((await _lease(kubectl))["renewTime"])
        return renewed - acquired > ELECTION.lease_duration

    await until(outlived)

    assert not waiting.done()
    assert (await _lease(kubectl))["holderIdentity"] == first.identity
    await _cancel(waiting)


def _occupy_event_loop(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(1000))


async def test_an_occupied_event_loop_keeps_the_lease(
    connection: Connection, contender: Contender, kubectl: Kubectl
) -> None:
    """Nothing else runs for longer than the lease, which is renewed all the same."""
    election = replace(
        ELECTION, lease_duration=timedelta(seconds=14), renew_deadline=timedelta(seconds=13)
    )
    first = contender(connection, election)
    await _soon(first.acquire())
    fence = Fence(first.term)
    acquired = datetime.fromisoformat((await _lease(kubectl))["acquireTime"])

    _occupy_event_loop(16)

    fence.check()
    lease = kubectl.get("lease", "leader")
    assert lease is not None
    spec = lease["spec"]
    assert datetime.fromisoformat(spec["renewTime"]) - acquired > election.renew_deadline / 2
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == (first.identity, 0)


async def test_an_event_loop_that_never_goes_on_loses_the_lease(
    connection: Connection, contender: Contender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its replica would lead without working; writes are refused as soon as it goes on."""
    monkeypatch.setattr(lease_keeper, "_RESPONSE_SECONDS", 2.0)
    first = contender(connection, LONG)
    await _soon(first.acquire())
    fence = Fence(first.term)

    _occupy_event_loop(8)

    assert await _is_refused(fence)
    await _soon(first.lost())


async def _is_refused(fence: Fence) -> bool:
    try:
        fence.check()
    except Fenced:
        return True
    return False


async def test_a_released_lease_permits_no_write(
    connection: Connection, contender: Contender
) -> None:
    """Another replica may acquire it at once."""
    first = contender(connection)
    await _soon(first.acquire())
    fence = Fence(first.term)
    fence.check()

    await first.release()

    assert await _is_refused(fence)
    assert await _is_refused(Fence(first.term))


async def test_a_lease_that_was_taken_and_given_back_is_a_new_epoch(
    connection: Connection, contender: Contender, kubectl: Kubectl
) -> None:
    """The holder leads on, but its runs began before another replica may have led."""
    first = contender(connection)
    await _soon(first.acquire())
    fence = Fence(first.term)
    losing = asyncio.create_task(first.lost())

    await asyncio.to_thread(kubectl.merge, "lease", "leader", {"spec": {"holderIdentity": ""}})

    await until(lambda: _is_refused(fence))
    assert (await _lease(kubectl))["leaseTransitions"] == 1
    Fence(first.term).check()
    assert not losing.done()
    await _cancel(losing)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


async def test_a_released_lease_is_taken_before_it_expires(
    connection: Connection, contender: Contender, kubectl: Kubectl
) -> None:
    """A successor does not wait for the duration; the takeover is counted."""
    first, second = contender(connection, LONG), contender(connection, LONG)
    await _soon(first.acquire())
    with capture_logs() as logs:
        waiting = asyncio.create_task(second.acquire())

        async def is_waiting() -> bool:
            return any(log["event"].startswith("Waiting for the leader") for log in logs)

        await until(is_waiting)
        await first.release()
        await _soon(waiting)

    spec = await _lease(kubectl)
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == (second.identity, 1)


async def test_a_release_after_losing_does_not_affect_the_successor(
    connection: Connection, contender: Contender, kubectl: Kubectl
) -> None:
    """Only the holder's own Lease is given up."""
    first, second = contender(connection), contender(connection)
    await _soon(first.acquire())
    await first.release()
    await _soon(second.acquire())

    await first.release()

    assert (await _lease(kubectl))["holderIdentity"] == second.identity


@pytest.fixture
async def relay(control_plane: Path) -> AsyncIterator[Relay]:
    """Put a relay in front of the control plane."""
    host, port = _server(control_plane).split(":")
    relay = Relay(host, int(port))
    await relay.start()
    yield relay
    await relay.stop()


def _config(file: Path) -> str:
    return file.read_text()


def _cluster(file: Path) -> Json:
    return dict(yaml.safe_load(_config(file))["clusters"][0]["cluster"])


def _server(file: Path) -> str:
    """Return host and port of the API server."""
    return str(_cluster(file)["server"]).removeprefix("https://")


@pytest.fixture
async def relayed(control_plane: Path, relay: Relay, tmp_path: Path) -> AsyncIterator[Connection]:
    """Connect through the relay."""
    file = tmp_path / "relayed.kubeconfig"
    file.write_text(
        _config(control_plane).replace(_server(control_plane), f"127.0.0.1:{relay.port}")
    )
    opened = await connect(file, user_agent="tests")
    yield opened
    await opened.close()


async def test_a_leader_without_api_stops_before_another_leads(
    connection: Connection,
    relayed: Connection,
    relay: Relay,
    contender: Contender,
    kubectl: Kubectl,
) -> None:
    """A replica whose requests hang stops leading before the Lease expires for others."""
    first, second = contender(relayed), contender(connection)
    await _soon(first.acquire())
    fence = Fence(first.term)
    fence.check()
    waiting = asyncio.create_task(second.acquire())
    losing = asyncio.create_task(first.lost())

    relay.freeze()
    done, _ = await asyncio.wait(
        [waiting, losing], timeout=180, return_when=asyncio.FIRST_COMPLETED
    )

    assert done == {losing}
    with pytest.raises(Fenced):
        fence.check()
    await _soon(waiting)
    assert (await _lease(kubectl))["holderIdentity"] == second.identity
    relay.thaw()


async def test_a_short_outage_costs_nothing(
    relayed: Connection, relay: Relay, contender: Contender, kubectl: Kubectl
) -> None:
    """A request that hangs for a moment does not end the leadership."""
    first = contender(relayed)
    await _soon(first.acquire())
    losing = asyncio.create_task(first.lost())
    before = (await _lease(kubectl))["renewTime"]

    relay.freeze()
    await relay.held()
    relay.thaw()

    async def renewed() -> bool:
        return bool((await _lease(kubectl))["renewTime"] > before)

    await until(renewed)
    assert not losing.done()
    await _cancel(losing)


async def test_a_stolen_lease_is_noticed(
    connection: Connection, contender: Contender, kubectl: Kubectl
) -> None:
    """A replica that finds another holder in the Lease stops leading."""
    first = contender(connection)
    await _soon(first.acquire())
    fence = Fence(first.term)

    theft = {"spec": {"holderIdentity": "thief"}}
    await asyncio.to_thread(kubectl.merge, "lease", "leader", theft)

    await _soon(first.lost())
    with pytest.raises(Fenced):
        fence.check()
    assert (await _lease(kubectl))["holderIdentity"] == "thief"


async def test_a_deleted_lease_is_recreated(
    connection: Connection, contender: Contender, kubectl: Kubectl
) -> None:
    """Deleting the Lease does not stop the operator; earlier runs may no longer write."""
    first = contender(connection)
    await _soon(first.acquire())
    fence = Fence(first.term)
    losing = asyncio.create_task(first.lost())

    await asyncio.to_thread(kubectl, "delete", "lease", "leader")

    async def again() -> bool:
        found = await asyncio.to_thread(kubectl.get, "lease", "leader")
        return found is not None and found["spec"]["holderIdentity"] == first.identity

    await until(again)
    await until(lambda: _is_refused(fence))
    Fence(first.term).check()
    assert not losing.done()
    await _cancel(losing)


@pytest.fixture
async def poor(control_plane: Path, kubectl: Kubectl, tmp_path: Path) -> AsyncIterator[Connection]:
    """Connect as a service account without any rights."""
    cluster = _cluster(control_plane)
    user = {"token": kubectl.token("default")}
    file = tmp_path / "poor.kubeconfig"
    file.write_text(json.dumps(kubeconfig(cluster.pop("server"), user, **cluster)))
    opened = await connect(file, user_agent="tests")
    yield opened
    await opened.close()


async def test_missing_permissions_are_logged_and_retried(
    poor: Connection, contender: Contender, kubectl: Kubectl
) -> None:
    """The log has the permissions to grant; once they are granted, the replica leads."""
    with capture_logs() as logs:
        waiting = asyncio.create_task(contender(poor).acquire())

        async def is_logged() -> bool:
            return any("leases.coordination.k8s.io" in log.get("grant", "") for log in logs)

        await until(is_logged)
        assert not waiting.done()
        verbs = "--verb=get,create,update"
        kubectl("create", "role", "elect", verbs, "--resource=leases.coordination.k8s.io")
        account = f"--serviceaccount={kubectl.namespace}:default"
        kubectl("create", "rolebinding", "elect", "--role=elect", account)
        await _soon(waiting)

    assert (await _lease(kubectl))["holderIdentity"]
