"""`drift: warn` reports objects that others have changed, `ignore` leaves them; neither writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.functional.test_operator import KIND, ROLE, echo, text_of, wait_for_text
from tests.functional.test_past_runs import wait_until_idle
from tests.support.kubectl import Json, Kubectl
from tests.support.operator import Operator
from tests.support.runner_cli import RunnerCli
from tests.support.waiting import eventually


def _drifted(kubectl: Kubectl) -> Json:
    body = kubectl.get(KIND, "a")
    assert body is not None
    conditions = body.get("status", {}).get("conditions", ())
    return next((each for each in conditions if each["type"] == "Drifted"), {})


def _wait_drifted(kubectl: Kubectl, operator: Operator, status: str, generation: int) -> str:
    """Wait for the condition; return its message."""
    found = eventually(
        lambda: _drifted(kubectl),
        lambda now: (now.get("status"), now.get("observedGeneration")) == (status, generation),
        details=operator.log,
    )
    return str(found["message"])


def _start_settled(kubectl: Kubectl, operator: Operator, project: Path, policy: str) -> None:
    """Start an operator with this policy, and have a resource reconciled."""
    watches = project / "watches.yaml"
    watches.write_text(f"{watches.read_text()}  drift: {policy}\n")
    operator.start()
    kubectl.apply(echo(sayThis="1"))
    wait_for_text(kubectl, operator, "hello 1")
    _wait_drifted(kubectl, operator, "False", 1)


def _drift_events(kubectl: Kubectl) -> str:
    return kubectl("get", "events", "--field-selector=reason=Drifted", "--output=name").strip()


def test_a_changed_object_is_reported_until_the_resource_is_edited(
    cli: RunnerCli, kubectl: Kubectl, operator: Operator, project: Path
) -> None:
    """As condition, Event, metric and state in `get`; an edit is reconciled as ever."""
    _start_settled(kubectl, operator, project, "warn")

    kubectl("patch", "configmap", "a", '--patch={"data": {"text": "other"}}')
    message = _wait_drifted(kubectl, operator, "True", 1)
    assert message == f"A run would write: ConfigMap {kubectl.namespace}/a changed: data.text"
    assert text_of(kubectl) == "other"
    eventually(lambda: _drift_events(kubectl), details=operator.log)
    assert operator.metric("operator_runner_drifted_resources", kind="Echo") == 1
    listed = cli("get", "--output=wide")
    assert (" Drifted " in listed, message in listed) == (True, True), listed

    kubectl.apply(echo(sayThis="2"))
    wait_for_text(kubectl, operator, "hello 2")
    _wait_drifted(kubectl, operator, "False", 2)
    eventually(
        lambda: operator.metric("operator_runner_drifted_resources", kind="Echo"),
        lambda count: count == 0,
        details=operator.log,
    )


@pytest.mark.slow
def test_ignored_drift_is_neither_reported_nor_corrected(
    kubectl: Kubectl, operator: Operator, project: Path
) -> None:
    """The event of the changed object is handled; an edit of the resource is reconciled as ever."""
    _start_settled(kubectl, operator, project, "ignore")

    kubectl("patch", "configmap", "a", '--patch={"data": {"text": "other"}}')
    eventually(
        lambda: [line for line in operator.lines("Reconciling") if "ConfigMap" in line["cause"]],
        details=operator.log,
    )
    wait_until_idle(operator)
    assert text_of(kubectl) == "other"
    assert _drifted(kubectl)["message"].endswith("drift is ignored")
    assert _drift_events(kubectl) == ""
    assert operator.metric("operator_runner_drifted_resources", kind="Echo") == 0

    kubectl.apply(echo(sayThis="2"))
    wait_for_text(kubectl, operator, "hello 2")


@pytest.mark.slow
def test_a_new_role_is_drift_and_the_annotation_overrides_the_watch(
    kubectl: Kubectl, operator: Operator, project: Path
) -> None:
    """With `warn` a new version of the role is reported until the resource is edited."""
    _start_settled(kubectl, operator, project, "warn")
    assert operator.terminate() == 0
    role = project / ROLE
    role.write_text(role.read_text().replace("{{ greeting }}", "goodbye"))
    operator.start()
    message = _wait_drifted(kubectl, operator, "True", 1)
    assert message == f"A run would write: ConfigMap {kubectl.namespace}/a changed: data.text"
    assert text_of(kubectl) == "hello 1"

    policy = "operator-runner.dev/drift"
    kubectl("annotate", KIND, "a", f"{policy}=ignore")
    kubectl.merge(KIND, "a", {"spec": {"sayThis": "2"}})
    wait_for_text(kubectl, operator, "goodbye 2")
    message = _wait_drifted(kubectl, operator, "False", 2)
    assert message.endswith("drift is ignored")

    kubectl("patch", "configmap", "a", '--patch={"data": {"text": "other"}}')
    wait_until_idle(operator)
    kubectl("annotate", KIND, "a", f"{policy}=warn", "--overwrite")
    _wait_drifted(kubectl, operator, "True", 2)
    assert text_of(kubectl) == "other"
    kubectl("annotate", KIND, "a", f"{policy}=enforce", "--overwrite")
    wait_for_text(kubectl, operator, "goodbye 2")


@pytest.mark.slow
def test_without_conditions_an_operator_that_answers_has_the_drift(
    cli: RunnerCli, kubectl: Kubectl, operator: Operator, project: Path
) -> None:
    """Until a run corrects it; the same drift is reported again after that."""
    watches = project / "watches.yaml"
    watches.write_text(f"{watches.read_text()}  drift: warn\n  manageStatus: false\n")
    operator.start()
    kubectl.apply(echo(sayThis="1"))
    wait_for_text(kubectl, operator, "hello 1")
    where = f"--work-dir={operator.scratch / 'work'}"

    def shown() -> tuple[str, str]:
        [item] = json.loads(cli("get", "echo", where, "--output=json"))["items"]
        return item["state"], item.get("drift", "")

    eventually(shown, lambda now: now == ("Succeeded", ""), details=operator.log)
    text = f"A run would write: ConfigMap {kubectl.namespace}/a changed: data.text"
    for count in (1, 2):
        kubectl("patch", "configmap", "a", '--patch={"data": {"text": "other"}}')
        eventually(shown, lambda now: now == ("Drifted", text), details=operator.log)
        assert len(operator.lines("Drift changed")) == count
        cli("reconcile", "echo/a", "--wait")
        eventually(shown, lambda now: now == ("Succeeded", ""), details=operator.log)
    assert text_of(kubectl) == "hello 1"
