"""`drift: warn` reports objects that others have changed, and writes nothing."""

from __future__ import annotations

from pathlib import Path

from tests.functional.test_operator import KIND, ROLE, echo, text_of, wait_for_text
from tests.support.kubectl import Json, Kubectl
from tests.support.operator import Operator
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


def test_a_changed_object_is_reported_until_the_resource_is_edited(
    kubectl: Kubectl, operator: Operator, project: Path
) -> None:
    """As condition, Event and metric; an edit of the resource is reconciled as ever."""
    watches = project / "watches.yaml"
    watches.write_text(watches.read_text() + "  drift: warn\n")
    operator.start()
    kubectl.apply(echo(sayThis="1"))
    wait_for_text(kubectl, operator, "hello 1")
    _wait_drifted(kubectl, operator, "False", 1)

    kubectl("patch", "configmap", "a", '--patch={"data": {"text": "other"}}')
    message = _wait_drifted(kubectl, operator, "True", 1)
    assert message == f"A run would write: ConfigMap {kubectl.namespace}/a changed: data.text"
    assert text_of(kubectl) == "other"
    eventually(
        lambda: kubectl("get", "events", "--field-selector=reason=Drifted", "--output=name"),
        lambda names: names.strip() != "",
        details=operator.log,
    )
    assert operator.metric("operator_runner_drifted_resources", kind="Echo") == 1

    kubectl.apply(echo(sayThis="2"))
    wait_for_text(kubectl, operator, "hello 2")
    _wait_drifted(kubectl, operator, "False", 2)
    eventually(
        lambda: operator.metric("operator_runner_drifted_resources", kind="Echo"),
        lambda count: count == 0,
        details=operator.log,
    )


def test_a_new_role_is_drift_and_the_annotation_overrides_the_watch(
    kubectl: Kubectl, operator: Operator, project: Path
) -> None:
    """With `warn` a new version of the role is reported until the resource is edited."""
    watches = project / "watches.yaml"
    watches.write_text(watches.read_text() + "  drift: warn\n")
    operator.start()
    kubectl.apply(echo(sayThis="1"))
    wait_for_text(kubectl, operator, "hello 1")
    _wait_drifted(kubectl, operator, "False", 1)
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

    kubectl("annotate", KIND, "a", f"{policy}=enforce", "--overwrite")
    kubectl("patch", "configmap", "a", '--patch={"data": {"text": "other"}}')
    wait_for_text(kubectl, operator, "goodbye 2")
