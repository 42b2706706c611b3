"""Attacks on availability, on the whole operator: others are served, and the Lease is kept."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from operator_runner.core.errors import ApiError
from operator_runner.kube.api import MERGE_PATCH, Api
from operator_runner.kube.session import connect
from tests.functional.test_operator import KIND, echo, text_of
from tests.support.kubectl import Kubectl
from tests.support.operator import Operator
from tests.support.waiting import eventually

LEASE = "availability"
LISTS = 433_000
"""Empty lists in 1.3 MB of JSON."""


async def test_edits_of_objects_of_many_values_cost_neither_the_lease_nor_others_their_turn(
    kubectl: Kubectl, operator: Operator, control_plane: Path
) -> None:
    """Ten objects of 1.3 MB are edited as fast as the API server allows."""
    names = [f"big-{number}" for number in range(10)]
    for name in names:
        text = json.dumps(echo(name)).replace(
            '"spec": {}', f'"spec": {{"x": [{"[]," * (LISTS - 1)}[]]}}'
        )
        await asyncio.to_thread(kubectl, "create", "--validate=false", "--filename=-", input_=text)
    flags = ("--leader-elect", f"--leader-election-id={LEASE}")
    await asyncio.to_thread(operator.start, *flags)
    connection = await connect(control_plane, user_agent="attacker")
    edits = itertools.count()
    attackers = [
        # More than two at a time delay the API server itself.
        asyncio.create_task(_edit(Api(connection), kubectl.namespace, some, edits))
        for some in (names[::2], names[1::2])
    ]
    try:
        before = next(edits)
        for number in range(5):
            edited = json.dumps(echo("good", sayThis=str(number)))
            apply = ("apply", "--validate=false", "--filename=-")
            await asyncio.to_thread(kubectl, *apply, input_=edited)
            await asyncio.to_thread(_wait_for_text, kubectl, operator, f"hello {number}")
            assert await asyncio.to_thread(operator.probe, "healthz") == 200
        assert next(edits) - before > 10
    finally:
        for attacker in attackers:
            attacker.cancel()
        await asyncio.gather(*attackers, return_exceptions=True)
        await connection.close()
    for name in names:
        condition = await asyncio.to_thread(_failure, kubectl, operator, name)
        assert "values, most of them in spec; at most 100000 are supported" in condition
    lease = await asyncio.to_thread(kubectl.get, "lease", LEASE)
    assert lease is not None
    assert lease["spec"]["leaseTransitions"] == 0
    assert operator.status is None
    assert operator.metric("leader_election_master_status", name=LEASE) == 1
    # Edits of labels reconcile nothing.
    refused = [line["name"] for line in operator.lines("Reconciliation failed")]
    assert sorted(refused) == sorted(names)


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
