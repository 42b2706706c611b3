"""What operator_sdk.util.k8s_event promises to roles, on a real API server."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args

from tests.support.kubectl import Json, Kubectl
from tests.support.operator import REPOSITORY

COLLECTIONS = REPOSITORY / "operator_runner" / "collections"
EVENT_MODULE = "ansible_collections.operator_sdk.util.plugins.modules.k8s_event"

Run = Callable[..., Json]


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import the module as Ansible does."""
    monkeypatch.syspath_prepend(str(COLLECTIONS))
    return importlib.import_module(EVENT_MODULE)


@pytest.fixture
def run(
    module: ModuleType, control_plane: Path, namespace: str, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Run the module about a ConfigMap `it`, as a task does; return what it reports."""

    def call(**options: Any) -> Json:
        about = {"apiVersion": "v1", "kind": "ConfigMap", "name": "it", "namespace": namespace}
        given = {
            "kubeconfig": str(control_plane),
            "name": "told",
            "namespace": namespace,
            "reason": "Because",
            "message": "so",
            "involvedObject": about,
            **options,
        }
        given = {key: value for key, value in given.items() if value is not None}
        with patch_module_args(given), pytest.raises(SystemExit):
            module.main()
        reported: Json = json.loads(capsys.readouterr().out)
        return reported

    return call


def config_map(kubectl: Kubectl) -> Json:
    kubectl.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "it"}})
    found = kubectl.get("configmap", "it")
    assert found is not None
    return found


def test_the_module_creates_an_event_of_an_object(run: Run, kubectl: Kubectl) -> None:
    """Every option is used; the Event has the object's uid, so that `kubectl describe` finds it."""
    about = config_map(kubectl)
    done = run(type="Warning", reportingComponent="example.com/it", source={"component": "it"})
    event = kubectl.get("event", "told")
    assert event is not None
    assert done["changed"]
    assert done["result"]["metadata"]["uid"] == event["metadata"]["uid"]
    assert (event["reason"], event["message"], event["type"]) == ("Because", "so", "Warning")
    assert (event["reportingComponent"], event["source"]) == ("example.com/it", {"component": "it"})
    assert event["involvedObject"]["uid"] == about["metadata"]["uid"]
    assert event["count"] == 1
    assert event["firstTimestamp"] == event["lastTimestamp"]
    assert "so" in kubectl("describe", "configmap", "it")


@pytest.mark.parametrize("merge_type", [None, ["strategic-merge"], ["merge"], ["json", "merge"]])
def test_repeated_events_are_counted(
    run: Run, kubectl: Kubectl, merge_type: list[str] | None
) -> None:
    """The count of the same reason increases, with a new message; another reason starts at one."""
    config_map(kubectl)
    first = run()["result"]
    again = run(message="so still", merge_type=merge_type)
    assert again["changed"]
    assert again["result"]["count"] == 2
    assert again["result"]["message"] == "so still"
    assert again["result"]["firstTimestamp"] == first["firstTimestamp"]
    assert run(reason="Other", merge_type=merge_type)["result"]["count"] == 1


def test_each_run_may_have_an_event_of_its_own(run: Run, kubectl: Kubectl) -> None:
    """With appendTimestamp the name is one that the API server takes."""
    config_map(kubectl)
    names = {run(appendTimestamp=True)["result"]["metadata"]["name"] for _ in range(2)}
    assert len(names) == 2
    assert all(kubectl.get("event", name) for name in names)
    assert all(name.startswith("told.") for name in names)


def test_state_absent_deletes_the_event(run: Run, kubectl: Kubectl) -> None:
    """State absent takes the Event away, once."""
    config_map(kubectl)
    run()
    assert run(state="absent")["changed"]
    assert kubectl.get("event", "told") is None
    assert not run(state="absent")["changed"]


def test_check_mode_writes_nothing(run: Run, kubectl: Kubectl) -> None:
    """In check mode the change is reported, not made."""
    assert run(_ansible_check_mode=True)["changed"]
    assert kubectl.get("event", "told") is None


def test_an_object_may_be_unknown(run: Run, namespace: str) -> None:
    """An Event about a missing object, or of an unknown kind, is created as well."""
    for kind in ("ConfigMap", "Nothing"):
        about = {
            "apiVersion": "example.com/v1" if kind == "Nothing" else "v1",
            "kind": kind,
            "name": "missing",
            "namespace": namespace,
        }
        done = run(name=kind.lower(), involvedObject=about)
        assert done["result"]["involvedObject"] == about


def test_what_the_api_server_refuses(run: Run) -> None:
    """The error has the API server's words, and its answer beside them."""
    done = run(involvedObject=None)
    assert done["msg"].startswith('Unable to create event: Event "told" is invalid: ')
    assert "involvedObject.namespace" in done["msg"]
    assert done["error"]["status"] == 422


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"reason": None}, "missing required arguments: reason"),
        ({"type": "Bad"}, "value of type must be one of: Normal, Warning, got: Bad"),
        ({"merge_type": ["apply"]}, "value of merge_type must be one or more of: json, merge"),
        ({"source": {}}, "missing required arguments: component found in source"),
        ({"involvedObject": {"kind": "Pod"}}, "missing required arguments: apiVersion, name"),
    ],
)
def test_faulty_options_are_refused(run: Run, options: Json, complaint: str) -> None:
    """The error names the option."""
    assert complaint in run(**options)["msg"]
