"""OLM's OperatorCondition on a real API server, with OLM's CRD and the rights that OLM grants."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from structlog.testing import capture_logs

from operator_runner.core.model import GVK, Json, RunContent, Watch
from operator_runner.devcluster import Cluster
from operator_runner.kube.api import Api
from operator_runner.kube.session import Connection, connect
from operator_runner.olm import (
    Condition,
    OperatorCondition,
    OperatorConditionReporter,
    upgradeable_condition,
)
from tests.contract.kube.scripted import kubeconfig
from tests.contract.kube.waiting import until
from tests.fakes.term import Clock, held_term
from tests.support.kubectl import Kubectl
from tests.support.olm import CONDITION, condition_of, crd, grant_condition, operator_condition

NAME = "db.v1.0.0"
WATCH = replace(
    Watch(GVK("example.com", "v1", "Db"), RunContent(role=Path("/roles/db"))),
    block_upgrade="spec.migrate",
)
OVERRIDE = {
    "type": "Upgradeable",
    "status": "True",
    "reason": "OperatorIsStable",
    "message": "Forcing an upgrade to bypass bug state",
}


def db(name: str = "a", *, migrate: bool = True) -> Json:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Db",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"migrate": migrate},
    }


@pytest.fixture(scope="module", autouse=True)
def installed(control_plane_cluster: Cluster) -> None:
    """Install the CRD of OLM."""
    manifest = str(crd("operatorconditions"))
    control_plane_cluster.exec(["kubectl", "apply", "--server-side", "--filename", manifest])
    Kubectl(control_plane_cluster.bin / "kubectl", "default").wait_for_kinds(CONDITION)


@pytest.fixture
async def account(
    control_plane: Path, kubectl: Kubectl, tmp_path: Path
) -> AsyncIterator[Connection]:
    """Connect as the operator's service account, which has no rights yet."""
    cluster = _cluster(control_plane)
    user = {"token": kubectl.token("default")}
    file = tmp_path / "account.kubeconfig"
    file.write_text(json.dumps(kubeconfig(cluster.pop("server"), user, **cluster)))
    opened = await connect(file, user_agent="tests")
    yield opened
    await opened.close()


def _cluster(file: Path) -> Json:
    return dict(yaml.safe_load(file.read_text())["clusters"][0]["cluster"])


@pytest.fixture
def upgrades(account: Connection, kubectl: Kubectl) -> OperatorConditionReporter:
    """Report as the operator does."""
    return OperatorConditionReporter(OperatorCondition(Api(account), kubectl.namespace, NAME))


def make(kubectl: Kubectl, **spec: object) -> None:
    """Make the OperatorCondition and grant it, as OLM does."""
    kubectl.apply(operator_condition(NAME, **spec))
    grant_condition(kubectl, NAME)


@asynccontextmanager
async def working(upgrades: OperatorConditionReporter) -> AsyncIterator[None]:
    """Keep the condition inside the block."""
    task = asyncio.create_task(upgrades.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def status(kubectl: Kubectl, expected: str) -> None:
    async def there() -> bool:
        return bool(condition_of(kubectl, NAME).get("status") == expected)

    await until(there)


async def test_a_critical_run_is_reported_to_olm_before_it_begins(
    upgrades: OperatorConditionReporter, kubectl: Kubectl
) -> None:
    """Upgradeable, False with the resource's name as long as the run takes, Upgradeable again."""
    make(kubectl)
    async with working(upgrades):
        await status(kubectl, "True")
        assert condition_of(kubectl, NAME)["reason"] == "OperatorUpgradeable"
        async with upgrades.guard(db(), WATCH):
            busy = condition_of(kubectl, NAME)
            assert (busy["status"], busy["reason"]) == ("False", "OperatorBusy")
            assert "Db shop/a" in busy["message"]
        await status(kubectl, "True")


async def test_a_former_leader_does_not_write_the_condition(
    account: Connection, kubectl: Kubectl
) -> None:
    """It could permit an upgrade during a critical run of the replica that leads now."""
    make(kubectl)
    term = held_term(clock := Clock())
    upgrades = OperatorConditionReporter(
        OperatorCondition(Api(account), kubectl.namespace, NAME), term
    )
    async with working(upgrades):
        await status(kubectl, "True")
        clock.now += 10
        with capture_logs() as logs:
            async with upgrades.guard(db(), WATCH):
                assert condition_of(kubectl, NAME)["status"] == "True"
    assert any("Lease team/web" in log.get("error", "") for log in logs)


async def test_of_two_critical_runs_the_last_one_frees(
    upgrades: OperatorConditionReporter, kubectl: Kubectl
) -> None:
    """The end of the first leaves the second's name, and the time since when it is so."""
    make(kubectl)
    async with working(upgrades):
        async with upgrades.guard(db("b"), WATCH):
            since = condition_of(kubectl, NAME)["lastTransitionTime"]
            async with upgrades.guard(db("a"), WATCH):
                assert condition_of(kubectl, NAME)["message"].endswith("Db shop/b, Db shop/a")

            async def one_left() -> bool:
                return str(condition_of(kubectl, NAME)["message"]).endswith(": Db shop/b")

            await until(one_left)
            assert condition_of(kubectl, NAME)["lastTransitionTime"] == since
        await status(kubectl, "True")


async def test_other_runs_write_nothing(
    upgrades: OperatorConditionReporter, account: Connection, kubectl: Kubectl
) -> None:
    """If the expression is false, or the condition already has this value, nothing is written."""
    make(kubectl)
    async with working(upgrades):
        await status(kubectl, "True")
    before = kubectl.get(CONDITION, NAME)

    async with upgrades.guard(db(migrate=False), WATCH):
        pass
    async with upgrades.guard(db(), replace(WATCH, block_upgrade=None)):
        pass
    await upgrades.report_idle()
    await OperatorCondition(Api(account), kubectl.namespace, NAME).set(upgradeable_condition(()))

    assert kubectl.get(CONDITION, NAME) == before


async def test_an_override_is_kept_beside_the_real_state(
    upgrades: OperatorConditionReporter, kubectl: Kubectl
) -> None:
    """An administrator decides in OLM; conditions of other types and OLM's own fields stay."""
    other = OVERRIDE | {"type": "Healthy", "lastTransitionTime": "2030-01-01T00:00:00Z"}
    make(kubectl, overrides=[OVERRIDE], conditions=[other])

    async with upgrades.guard(db(), WATCH):
        found = kubectl.get(CONDITION, NAME)

    assert found is not None
    assert found["spec"]["overrides"] == [OVERRIDE]
    assert found["spec"]["deployments"] == ["manager"]
    assert found["spec"]["conditions"][0] == other
    assert condition_of(kubectl, NAME)["status"] == "False"


async def test_a_write_in_between_is_kept(account: Connection, kubectl: Kubectl) -> None:
    """Of two who write at once one gets a conflict, reads again and loses nothing."""
    make(kubectl)
    condition = OperatorCondition(Api(account), kubectl.namespace, NAME)
    types = ["Upgradeable", "A", "B"]

    await asyncio.gather(
        *(condition.set(Condition(one, "True", "Fine", "all is well")) for one in types)
    )

    assert [condition_of(kubectl, NAME, one).get("status") for one in types] == ["True"] * 3


async def test_the_operator_waits_for_object_and_rights(
    upgrades: OperatorConditionReporter, kubectl: Kubectl
) -> None:
    """Each obstacle is named once, with its hint, while the operator works on."""
    with capture_logs() as logs:
        async with working(upgrades):

            async def warning_logged() -> bool:
                return any("OLM does it" in line.get("grant", "") for line in logs)

            await until(warning_logged)
            async with upgrades.guard(db(), WATCH):
                pass
            make(kubectl)

            async def is_logged() -> bool:
                return logs[-1].get("upgradeable") == "True"

            await until(is_logged)
    assert condition_of(kubectl, NAME)["status"] == "True"
    warnings = [line for line in logs if line["log_level"] == "warning"]
    assert warnings[0]["operatorcondition"] == f"{kubectl.namespace}/{NAME}"
    assert len({line.get("error", line["event"]) for line in warnings}) == len(warnings)
    assert any("an upgrade may interrupt" in line["event"] for line in warnings)


async def test_the_end_of_the_operator_unblocks_upgrades(
    upgrades: OperatorConditionReporter, kubectl: Kubectl
) -> None:
    """Nothing of a run that was ended with the operator blocks an upgrade afterwards."""
    make(kubectl)
    async with upgrades.guard(db(), WATCH):
        assert condition_of(kubectl, NAME)["status"] == "False"

    await upgrades.report_idle()

    assert condition_of(kubectl, NAME)["status"] == "True"
