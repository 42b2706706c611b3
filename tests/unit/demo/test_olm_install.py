"""Objects that the demo creates for OLM, and the states that it reads."""

from __future__ import annotations

import json
from typing import Any

from demo.olm_install import Installation, Phase


def plan(name: str, version: str, phase: str) -> dict[str, Any]:
    spec = {"clusterServiceVersionNames": [version]}
    status = {"status": {"phase": phase}} if phase else {}
    return {"metadata": {"name": name}, "spec": spec, **status}


PLANS = [
    plan("install-a", "web.v1", "RequiresApproval"),
    # OLM has not written its phase yet.
    plan("install-0", "web.v2", ""),
    plan("install-b", "web.v2", "RequiresApproval"),
    plan("install-c", "web.v3", "Complete"),
    plan("install-d", "web.v4", ""),
]


class FakeKubectl:
    """Returns the same objects for each `get`, and records the applied ones."""

    def __init__(self, *items: dict[str, Any]) -> None:
        self.items = items
        self.applied: list[dict[str, Any]] = []
        self.calls: list[tuple[str, ...]] = []

    def __call__(self, arguments: tuple[str, ...], text: str | None) -> str:
        self.calls.append(arguments)
        if text is not None:
            self.applied += json.loads(text)["items"]
        return json.dumps({"items": self.items})


def installation(kubectl: FakeKubectl) -> Installation:
    return Installation(kubectl, "shop", "web", "alpha", "olm/local")


def test_a_subscription_waits_for_approval() -> None:
    """Namespace, group for all namespaces, and the Subscription with the operator's variables."""
    kubectl = FakeKubectl()

    installation(kubectl).subscribe("web.v1", {"RELATED_IMAGE_WEB": "web:1"})

    namespace, group, subscription = kubectl.applied
    assert namespace["metadata"]["name"] == "shop"
    assert group["spec"] == {}
    assert subscription["metadata"] == {"name": "web", "namespace": "shop"}
    spec = subscription["spec"]
    assert (spec["sourceNamespace"], spec["source"]) == ("olm", "local")
    assert (spec["startingCSV"], spec["installPlanApproval"]) == ("web.v1", "Manual")
    assert spec["config"]["env"] == [{"name": "RELATED_IMAGE_WEB", "value": "web:1"}]


def test_the_plan_of_a_version_is_found_and_approved() -> None:
    """By its ClusterServiceVersion; None unless OLM requires an approval."""
    kubectl = FakeKubectl(*PLANS)

    assert installation(kubectl).plan("web.v2") == "install-b"
    for version in ("web.v3", "web.v4", "web.v5"):
        assert installation(kubectl).plan(version) is None
    installation(kubectl).approve("install-b")

    assert kubectl.calls[-1][:3] == ("patch", "installplan", "install-b")
    assert '"approved": true' in kubectl.calls[-1][-2]


def test_phases_are_printed_with_their_reasons() -> None:
    """A version without a status is unknown so far."""
    well = {"phase": "Succeeded", "reason": "InstallSucceeded", "message": "fine"}
    kubectl = FakeKubectl(
        {"metadata": {"name": "web.v1"}, "status": well}, {"metadata": {"name": "web.v2"}}
    )

    phases = installation(kubectl).phases()

    assert phases["web.v1"] == Phase("Succeeded", "InstallSucceeded", "fine")
    assert str(phases["web.v2"]) == "unknown (unknown): unknown"


def test_only_present_conditions_are_problems() -> None:
    """Conditions that are False, and those without a message, are omitted."""
    conditions = [
        {"type": "ResolutionFailed", "status": "True", "message": "no such channel"},
        {"type": "CatalogSourcesUnhealthy", "status": "False", "message": "all are healthy"},
        {"type": "Installed", "status": "True"},
    ]
    kubectl = FakeKubectl(
        {"kind": "Subscription", "metadata": {"name": "web"}, "status": {"conditions": conditions}}
    )

    assert installation(kubectl).trouble().splitlines() == [
        "Subscription web: no state yet",
        "  ResolutionFailed: no such channel",
    ]
