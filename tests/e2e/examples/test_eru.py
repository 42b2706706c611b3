"""The example ERU: restarts at times, and Erus of annotated Deployments.

A tick is due at once where a test sets `lastScheduleTime` back: no test waits for the clock.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml

from operator_runner.devcluster import Cluster
from tests.support.examples import FOLDER, Example, running
from tests.support.kubectl import Json, Kubectl
from tests.support.visitor import Visitor
from tests.support.waiting import eventually

KIND = "erus.mtsre.meitu.com"
DOMAIN = "mtsre.meitu.com"
ANNOTATION = f"{DOMAIN}/eru"
LONG_AGO = "2019-01-01T00:00:00Z"
YEARS = 10 * 366 * 24 * 3600
"""A deadline in seconds that no tick of a test exceeds."""


def yearly(month: int) -> tuple[str, str]:
    """Return the schedule of the first day of a month, and its latest tick."""
    now = datetime.now(UTC)
    year = now.year if now.month >= month else now.year - 1
    return f"0 0 1 {month} *", f"{year}-{month:02}-01T00:00:00Z"


@pytest.fixture(scope="module")
def example(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Example]:
    """Run the operator, with the image of the samples on the node."""
    with running("eru", cluster, tmp_path_factory.mktemp("eru")) as example:
        example.load_image()
        yield example


def eru(name: str = "web", schedule: str = "0 4 * * *", **spec: Any) -> Json:
    return {
        "apiVersion": f"{DOMAIN}/v1",
        "kind": "Eru",
        "metadata": {"name": name},
        "spec": {"deploymentName": name, "schedule": schedule} | spec,
    }


def deployment(name: str = "web", replicas: int = 0, **annotations: str) -> Json:
    """Return the Deployment of the samples, under another name."""
    body: Json = yaml.safe_load((FOLDER / "eru/config/samples/deployment.yaml").read_text())
    body["metadata"] = {
        "name": name,
        "annotations": {
            f"{DOMAIN}/{key.replace('_', '-')}": annotations[key] for key in annotations
        },
    }
    body["spec"] |= {"replicas": replicas, "selector": {"matchLabels": {"app": name}}}
    body["spec"]["template"]["metadata"]["labels"] = {"app": name}
    return body


class World:
    """Reads the cluster and waits for states."""

    def __init__(self, kubectl: Kubectl, example: Example) -> None:
        self.kubectl, self._operator = kubectl, example.operator

    def until(self, look: Callable[[], Any], expected: Any = True) -> None:
        eventually(look, lambda seen: seen == expected, seconds=180, details=self._operator.log)

    def eru(self, name: str = "web") -> Json:
        """Return an Eru, empty if there is none."""
        return self.kubectl.get(KIND, name) or {}

    def status(self, field: str, name: str = "web") -> Any:
        return self.eru(name).get("status", {}).get(field)

    def condition(self, type_: str, name: str = "web") -> Json:
        found = self.status("conditions", name) or []
        return next((each for each in found if each["type"] == type_), {})

    def until_settled(self, name: str = "web") -> None:
        """Wait until a run has handled the current spec."""
        generation = self.eru(name)["metadata"]["generation"]
        self.until(lambda: self.status("observedGeneration", name), generation)

    def until_handled(self, tick: str, name: str = "web") -> None:
        """Wait until a run has handled a tick."""
        self.until(lambda: self.status("lastScheduleTime", name), tick)

    def deployment(self, name: str = "web") -> Json:
        found = self.kubectl.get("deployment", name)
        assert found is not None
        return found

    def set_back(self, name: str = "web") -> None:
        """Have the Eru miss the ticks of years."""
        patch = json.dumps({"status": {"lastScheduleTime": LONG_AGO}})
        arguments = ("--subresource=status", "--type=merge", f"--patch={patch}")
        self.kubectl("patch", KIND, name, *arguments)

    def skipped(self, name: str) -> list[str]:
        """Return the reasons for which ticks of an Eru did not restart anything."""
        events = self.kubectl.list("events")
        return [
            event["message"].partition(": ")[2]
            for event in events
            if event["reason"] == "RestartSkipped" and event["involvedObject"]["name"] == name
        ]

    def has_run(self, name: str, generation: int) -> bool:
        """Return whether a run for this generation of a Deployment has ended."""
        return any(
            line["kind"] == "Deployment"
            and line["name"] == name
            and f"to {generation}" in line["cause"]
            for line in self._operator.lines("Reconciled")
        )

    def runs_by_timers(self) -> list[str]:
        return self._operator.runs_by_timers(self.kubectl.namespace)

    def pods(self) -> set[str]:
        """Return the Pods that are not about to end."""
        found = self.kubectl.list("pods")
        return {
            pod["metadata"]["uid"] for pod in found if "deletionTimestamp" not in pod["metadata"]
        }


@pytest.fixture
def world(kubectl: Kubectl, example: Example) -> World:
    return World(kubectl, example)


def test_each_tick_replaces_every_pod_once(
    world: World, example: Example, kubectl: Kubectl
) -> None:
    """No request fails meanwhile; an operator that was killed catches up, once."""
    kubectl.apply(deployment(replicas=2))
    kubectl("expose", "deployment", "web", "--port=8080")
    kubectl("rollout", "status", "deployment/web", "--timeout=180s")
    schedule, tick = yearly(1)
    kubectl.apply(eru(schedule=schedule, startingDeadlineSeconds=YEARS))
    world.until(lambda: world.condition("Ready").get("status"), "True")
    address = kubectl.get("service", "web")
    assert address is not None

    def restarts(tick: str, before: set[str], revision: int) -> set[str]:
        """Wait for the restart of a tick; return the Pods after it."""
        world.until_handled(tick)
        kubectl("rollout", "status", "deployment/web", "--timeout=180s")
        after = world.pods()
        found = world.deployment()
        annotations = found["spec"]["template"]["metadata"]["annotations"]
        assert annotations == {f"{DOMAIN}/restartedAt": tick}
        assert found["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == str(
            revision
        )
        assert len(after) == 2
        assert not after & before
        return after

    with Visitor(f"http://{address['spec']['clusterIP']}:8080/").visiting() as visitor:
        eventually(lambda: visitor.answers, details=example.operator.log)
        before = world.pods()
        world.set_back()
        before = restarts(tick, before, 2)
        # A run without a tick restarts nothing.
        kubectl.merge(KIND, "web", {"spec": {"startingDeadlineSeconds": YEARS + 1}})
        world.until_settled()
        assert world.pods() == before
        example.operator.kill()
        schedule, tick = yearly(2)
        kubectl.merge(KIND, "web", {"spec": {"schedule": schedule}})
        world.set_back()
        example.restart()
        before = restarts(tick, before, 3)
        kubectl.merge(KIND, "web", {"spec": {"startingDeadlineSeconds": YEARS}})
        world.until_settled()
        assert world.pods() == before
        eventually(lambda: visitor.answers > 100, details=example.operator.log)
    assert visitor.failures == []


def test_annotated_deployments_have_an_eru(world: World, kubectl: Kubectl) -> None:
    """It follows the annotations, keeps edits of users, and only such an Eru is deleted."""
    kubectl.apply(
        deployment("plain"),
        deployment("made", eru="true"),
        eru("own", "0 5 * * *"),
        deployment("own", eru="true", eru_schedule="0 6 * * *"),
    )
    untouched = world.deployment("plain")
    world.until(lambda: world.eru("made").get("spec", {}).get("schedule"), "0 4 * * *")
    # Nothing has waited for a timer: the event of the Deployment has led to its Eru.
    assert world.runs_by_timers() == []
    owner = world.eru("made")["metadata"]["ownerReferences"][0]
    assert owner["uid"] == world.deployment("made")["metadata"]["uid"]
    world.until(lambda: world.condition("Ready", "made").get("status"), "True")
    mark = f"{DOMAIN}/has-eru"
    world.until(lambda: mark in world.deployment("own")["metadata"]["annotations"])

    def annotate(name: str, *changes: str) -> None:
        kubectl("annotate", "deployment", name, "--overwrite", *changes)

    annotate("made", f"{ANNOTATION}-schedule=0 3 * * *")
    world.until(lambda: world.eru("made")["spec"]["schedule"], "0 3 * * *")
    assert world.runs_by_timers() == []
    kubectl.merge(KIND, "made", {"spec": {"schedule": "0 2 * * *", "suspend": True}})
    annotate("made", f"{ANNOTATION}-schedule=0 1 * * *")
    generation = world.deployment("made")["metadata"]["generation"]
    world.until(lambda: world.has_run("made", generation))
    annotate("own", f"{ANNOTATION}-")
    world.until(lambda: mark in world.deployment("own")["metadata"]["annotations"], expected=False)
    spec = world.eru("made")["spec"]
    assert (spec["schedule"], spec["suspend"]) == ("0 2 * * *", True)
    annotate("made", f"{ANNOTATION}-")
    world.until(lambda: world.eru("made"), {})
    own = world.eru("own")
    assert own["spec"]["schedule"] == "0 5 * * *"
    assert "ownerReferences" not in own["metadata"]
    plain = world.deployment("plain")
    assert plain["metadata"]["generation"] == untouched["metadata"]["generation"]
    assert plain["spec"] == untouched["spec"]
    assert not [key for key in plain["metadata"].get("annotations", {}) if DOMAIN in key]


def test_an_eru_shows_why_it_does_not_restart(world: World, kubectl: Kubectl) -> None:
    """A bad schedule, a missing Deployment, suspension, and ticks that are left out."""
    schedule, tick = yearly(1)
    due: Json = {"schedule": schedule, "startingDeadlineSeconds": YEARS}
    paused = deployment("paused", replicas=1)
    paused["spec"]["paused"] = True
    rolling = deployment("rolling", replicas=1)
    rolling["spec"]["template"]["spec"]["containers"][0]["image"] = "operator-runner.local/none:1"
    names = ("empty", "paused", "rolling", "suspended")
    kubectl.apply(
        deployment("bad"), deployment("empty"), paused, rolling, deployment("suspended"),
        eru("bad", "0 99 * * *"), eru("missing"),
        *(eru(name, suspend=name == "suspended", **due) for name in names),
    )  # fmt: skip
    world.until(lambda: world.condition("Ready", "bad").get("status"), "False")
    ready = world.condition("Ready", "bad")
    assert ready["reason"] == "InvalidSchedule"
    assert "position 2: invalid hour '99'" in ready["message"]
    kubectl.merge(KIND, "bad", {"spec": {"schedule": "0 9 * * *"}})
    world.until(lambda: world.condition("Ready", "bad").get("status"), "True")

    world.until(lambda: world.condition("Bound", "missing").get("status"), "False")
    world.until(lambda: world.condition("Ready", "missing").get("reason"), "DeploymentNotFound")
    kubectl.apply(deployment("missing"))
    world.until(lambda: world.condition("Bound", "missing").get("status"), "True")
    world.until(lambda: world.condition("Ready", "missing").get("status"), "True")

    for name in names:
        world.until_settled(name)
        world.set_back(name)
    for name in names[:-1]:
        world.until_handled(tick, name)
        annotations = world.deployment(name)["spec"]["template"]["metadata"].get("annotations")
        assert annotations is None, name
    world.until(lambda: world.skipped("empty"), ["the Deployment has no replicas"])
    world.until(lambda: world.skipped("paused"), ["the Deployment is paused"])
    reason = "the last rollout of the Deployment is still in progress"
    world.until(lambda: world.skipped("rolling"), [reason])
    kubectl.merge(KIND, "suspended", {"spec": {"timeZone": "Europe/Berlin"}})
    world.until_settled("suspended")
    assert world.status("lastScheduleTime", "suspended") == LONG_AGO
    assert world.status("nextScheduleTime", "suspended") is None
    assert world.skipped("suspended") == []
