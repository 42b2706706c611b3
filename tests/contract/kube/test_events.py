"""Kubernetes Events as a user finds them afterwards."""

from __future__ import annotations

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from operator_runner.core.model import EventSpec, Json
from operator_runner.kube.api import Api
from operator_runner.kube.cluster import EventRecorder
from tests.contract.kube.scripted import ScriptedServer, status
from tests.support.kubectl import Kubectl


def _spec(note: str, cause: str = "", duration_seconds: float | None = None) -> EventSpec:
    return EventSpec(
        "RunFailed", note, warning=True, cause=cause, duration_seconds=duration_seconds
    )


@pytest.fixture
def subject(kubectl: Kubectl) -> Json:
    """Make an object that Events can be about."""
    kubectl("create", "configmap", "subject")
    found = kubectl.get("configmap", "subject")
    assert found is not None
    return found


def _events(kubectl: Kubectl) -> list[Json]:
    listed = kubectl.list("events.v1.events.k8s.io")
    return [event for event in listed if event["reportingController"] == "operator-runner"]


async def test_an_event_is_shown_with_its_object(api: Api, subject: Json, kubectl: Kubectl) -> None:
    """`kubectl describe` shows reason and note; type and action are set."""
    await EventRecorder(api).emit(subject, _spec("task x: no"))

    (event,) = _events(kubectl)
    assert (event["type"], event["action"], event["note"]) == ("Warning", "Reconcile", "task x: no")
    assert event["regarding"]["uid"] == subject["metadata"]["uid"]
    assert event["reportingInstance"]
    assert "task x: no" in kubectl("describe", "configmap", "subject")


async def test_equal_events_are_counted(api: Api, subject: Json, kubectl: Kubectl) -> None:
    """A note that comes again is one Event with a count; another note is another Event."""
    recorder = EventRecorder(api)
    for note in ("a", "a", "a", "b"):
        await recorder.emit(subject, _spec(note))

    counts = {event["note"]: event.get("series", {}).get("count") for event in _events(kubectl)}
    assert counts == {"a": 3, "b": None}


async def test_a_series_with_an_expired_event_is_restarted(
    api: Api, subject: Json, kubectl: Kubectl
) -> None:
    """Events expire on the API server; the next one is written all the same."""
    recorder = EventRecorder(api)
    await recorder.emit(subject, _spec("a"))
    kubectl("delete", "events", "--all")

    await recorder.emit(subject, _spec("a"))

    (event,) = _events(kubectl)
    assert "series" not in event


async def test_a_long_note_is_cut(api: Api, subject: Json, kubectl: Kubectl) -> None:
    """The API server takes 1024 bytes; characters stay whole, and so does the end with the cure."""
    await EventRecorder(api).emit(subject, _spec("ä" * 2000 + "cure"))

    (event,) = _events(kubectl)
    begin, _, end = event["note"].partition(" [cut: ")
    assert begin == "ä" * len(begin)
    assert begin
    assert end.endswith("ääcure")
    assert 900 < len(event["note"].encode()) <= 1024


async def test_an_event_contains_the_cause(api: Api, subject: Json, kubectl: Kubectl) -> None:
    """What led to a run is in the note, also of a long one, and with its time in annotations."""
    await EventRecorder(api).emit(
        subject, _spec("x" * 2000, cause="spec: spec.size", duration_seconds=1.5)
    )

    (event,) = _events(kubectl)
    assert event["note"].endswith("xx (why: spec: spec.size)")
    assert event["metadata"]["annotations"] == {
        "operator-runner.dev/cause": "spec: spec.size",
        "operator-runner.dev/duration-seconds": "1.500",
    }


async def test_events_of_cluster_scoped_objects_are_in_default(api: Api, kubectl: Kubectl) -> None:
    """Events need a namespace; kubectl looks for these in `default`."""
    about = kubectl.get("namespace", kubectl.namespace)
    assert about is not None

    await EventRecorder(api).emit(about, _spec("cluster-wide"))

    selector = f"--field-selector=regarding.name={kubectl.namespace}"
    found = kubectl("get", "events.v1.events.k8s.io", selector, "--namespace=default")
    assert "cluster-wide" in found


async def test_a_failed_event_is_logged_once(scripted: ScriptedServer, scripted_api: Api) -> None:
    """A reconcile continues without its Events; after a success failures are logged again."""
    allowed = False

    async def answer(_: web.Request) -> web.Response:
        return web.json_response({}) if allowed else status(403, "events is forbidden")

    scripted.answer = answer
    recorder = EventRecorder(scripted_api)
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "uid": "1"}}

    with capture_logs() as logs:
        for allowed in (False, False, True, False):  # noqa: B007 read by the server
            await recorder.emit(body, _spec("secret"))

    assert [log["error"] for log in logs] == ["events is forbidden"] * 2
    assert "secret" not in str(logs)


@pytest.mark.parametrize("name", ["system:viewer", "Upper", "a b\nc", "é" * 300])
async def test_an_event_about_an_object_of_any_name(api: Api, kubectl: Kubectl, name: str) -> None:
    """Names of RBAC objects may have characters that those of Events cannot have."""
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "rules": []}
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{kubectl.namespace}/roles"
    about = await api.request("POST", path, body={**role, "metadata": {"name": name}})

    await EventRecorder(api).emit(about, _spec("a"))

    (event,) = _events(kubectl)
    assert event["regarding"]["name"] == name
