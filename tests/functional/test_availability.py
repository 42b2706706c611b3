"""Attacks on availability, on the whole operator: others are served, and the Lease is kept."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from operator_runner.core.errors import ApiError
from operator_runner.devcluster import Cluster
from operator_runner.kube.api import MERGE_PATCH, Api
from operator_runner.kube.session import connect
from tests.functional.test_operator import KIND, echo, text_of
from tests.support.kubectl import Kubectl
from tests.support.operator import Operator
from tests.support.waiting import eventually

LEASE = "availability"


@pytest.mark.parametrize(
    "size",
    [
        (2, 120_000),
        # The API server takes seconds for each request to an object of 1.3 MB.
        pytest.param((10, 433_000), marks=pytest.mark.slow),
    ],
)
async def test_edits_of_objects_of_many_values_cost_neither_the_lease_nor_others_their_turn(
    kubectl: Kubectl,
    control_plane_cluster: Cluster,
    project: Path,
    tmp_path: Path,
    size: tuple[int, int],
) -> None:
    """So many objects of so many empty lists are edited as fast as the API server allows."""
    count, lists = size
    control_plane = control_plane_cluster.kubeconfig
    other = Kubectl.in_new_namespace(control_plane_cluster)
    namespaces = f"{kubectl.namespace},{other.namespace}"
    operator = Operator(project, control_plane, namespaces, tmp_path, {})
    names = [f"big-{number}" for number in range(count)]
    for name in names:
        text = json.dumps(echo(name)).replace(
            '"spec": {}', f'"spec": {{"x": [{"[]," * (lists - 1)}[]]}}'
        )
        await asyncio.to_thread(kubectl, "create", "--validate=false", "--filename=-", input_=text)
    flags = (
        "--leader-elect",
        f"--leader-election-id={LEASE}",
        f"--leader-election-namespace={other.namespace}",
    )
    try:
        await asyncio.to_thread(operator.start, *flags)
        await _attack(kubectl, other, operator, control_plane, names)
        for name in names:
            condition = await asyncio.to_thread(_failure, kubectl, operator, name)
            assert "values, most of them in spec; at most 100000 are supported" in condition
        lease = await asyncio.to_thread(other.get, "lease", LEASE)
        assert lease is not None
        assert lease["spec"]["leaseTransitions"] == 0
        assert operator.metric("leader_election_master_status", name=LEASE) == 1
        assert operator.status() is None
        # Some twice: a report that meets an edit five times is repeated.
        refused = {line["name"] for line in operator.lines("Reconciliation failed")}
        assert refused == set(names)
    finally:
        operator.kill()


async def _attack(
    kubectl: Kubectl, other: Kubectl, operator: Operator, control_plane: Path, names: Sequence[str]
) -> None:
    """Edit large objects while one of the other namespace is edited five times."""
    connection = await connect(control_plane, user_agent="attacker")
    edits = itertools.count()
    attackers = [
        # More than two at a time delay the API server itself.
        asyncio.create_task(_edit(Api(connection), kubectl.namespace, some, edits))
        for some in (names[::2], names[1::2])
    ]
    try:
        for number in range(5):
            edited = json.dumps(echo("good", sayThis=str(number)))
            apply = ("apply", "--validate=false", "--filename=-")
            await asyncio.to_thread(other, *apply, input_=edited)
            await asyncio.to_thread(_wait_for_text, other, operator, f"hello {number}")
            assert await asyncio.to_thread(operator.probe, "healthz") == 200
    finally:
        for attacker in attackers:
            attacker.cancel()
        await asyncio.gather(*attackers, return_exceptions=True)
        await connection.close()


async def _edit(
    api: Api, namespace: str, names: Sequence[str], edits: itertools.count[int]
) -> None:
    path = f"/apis/test.example.com/v1/namespaces/{namespace}/echoes"
    for name in itertools.cycle(names):
        body = {"metadata": {"labels": {"edit": str(next(edits))}}}
        with suppress(ApiError):  # busy
            await api.request(
                "PATCH", f"{path}/{name}", body=body, content_type=MERGE_PATCH, timeout=60
            )


def _wait_for_text(kubectl: Kubectl, operator: Operator, text: str) -> None:
    eventually(lambda: text_of(kubectl, "good"), lambda now: now == text, details=operator.log)


def _failure(kubectl: Kubectl, operator: Operator, name: str) -> str:
    path = '--output=jsonpath={.status.conditions[?(@.type=="Failure")].message}'
    return eventually(lambda: kubectl("get", KIND, name, path), bool, details=operator.log)
