"""`deselection` runs once for a resource that was chosen and no longer is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.functional.test_operator import KIND, echo, text_of, wait_for_text
from tests.support.kubectl import Json, Kubectl
from tests.support.operator import Operator
from tests.support.waiting import eventually

_MARK = "test.example.com/chosen"
_ON = {"on": "yes"}
_META = "{{ ansible_operator_meta.%s }}"
_WATCH = {
    "group": "test.example.com",
    "version": "v1",
    "kind": "Echo",
    "role": "echo",
    "vars": {"greeting": "hello"},
    "selector": {"matchLabels": _ON},
    "when": "spec.enabled != `false`",
    "deselection": {"name": _MARK, "role": "undo"},
}
_FINALIZER = {"name": "test.example.com/farewell", "role": "cleanup"}
_NO_LONGER = "no longer matches selector and when"


def _config_map(name: str, **arguments: Any) -> Json:
    metadata = {"name": name, "namespace": _META % "namespace"}
    definition = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    return {"definition": definition, **arguments}


_UNDO = {
    "name": "Delete what the role created",
    "kubernetes.core.k8s": _config_map(_META % "name", state="absent"),
}
_BEGIN = {"name": "Leave a trace", "kubernetes.core.k8s": _config_map("begun")}
_READ = {
    "name": "Read whether to go on",
    "kubernetes.core.k8s_info": {
        "api_version": "v1",
        "kind": "ConfigMap",
        "name": "go",
        "namespace": _META % "namespace",
    },
    "register": "go",
}
_WAIT = _READ | {"until": "go.resources | length > 0", "retries": 3000, "delay": 0.2}
_REFUSE = {"name": "Go on", "assert": {"that": "go.resources | length > 0", "fail_msg": "not yet"}}


def _write(project: Path, *undo: Json, **changed: Any) -> None:
    """Write the watch, and a role for its deselection of these tasks."""
    tasks = project / "roles" / "undo" / "tasks"
    tasks.mkdir(parents=True)
    (tasks / "main.yml").write_text(json.dumps([*undo, _UNDO]))
    (project / "watches.yaml").write_text(json.dumps([_WATCH | changed]))


def _causes(operator: Operator, name: str) -> list[str]:
    return [line["cause"] for line in operator.lines("Reconciling") if line["name"] == name]


def _is_marked(kubectl: Kubectl, kind: str = KIND, name: str = "a") -> bool:
    body = kubectl.get(kind, name)
    assert body is not None
    return _MARK in (body["metadata"].get("annotations") or {})


def _wait_until_unmarked(
    kubectl: Kubectl, operator: Operator, kind: str = KIND, name: str = "a"
) -> None:
    eventually(lambda: _is_marked(kubectl, kind, name), lambda now: not now, details=operator.log)


def _wait_until_successful(kubectl: Kubectl, operator: Operator, name: str = "a") -> None:
    eventually(
        lambda: _running(kubectl, name).get("reason"),
        lambda reason: reason == "Successful",
        details=operator.log,
    )


def _running(kubectl: Kubectl, name: str = "a") -> Json:
    body = kubectl.get(KIND, name)
    assert body is not None
    found = {one["type"]: one for one in body.get("status", {}).get("conditions", ())}
    return found.get("Running") or {}


def _unlabel(kubectl: Kubectl, name: str = "a", kind: str = KIND) -> None:
    kubectl("label", kind, name, "on-")


def test_a_deselected_resource_is_cleaned_up_once(
    kubectl: Kubectl, operator: Operator, project: Path
) -> None:
    """By its label and by `when`, and chosen again it runs again; others are left alone."""
    _write(project, kstatus=True)
    operator.start()
    kubectl.apply(echo("never"), echo(labels=_ON))
    wait_for_text(kubectl, operator, "hello nothing")
    kubectl("wait", "--for=condition=Ready", f"{KIND}/a", "--timeout=180s")
    assert _is_marked(kubectl)

    _unlabel(kubectl)
    _wait_until_unmarked(kubectl, operator)
    assert text_of(kubectl) is None
    condition = _running(kubectl)
    assert (condition["status"], condition["reason"]) == ("False", "Deselected")
    events = kubectl.list("events.events.k8s.io")
    assert [one["reason"] for one in events].count("Deselected") == 1

    kubectl("label", KIND, "a", "on=yes")
    wait_for_text(kubectl, operator, "hello nothing")
    kubectl("wait", "--for=condition=Ready", f"{KIND}/a", "--timeout=180s")
    kubectl.merge(KIND, "a", {"spec": {"enabled": False}})
    _wait_until_unmarked(kubectl, operator)
    assert text_of(kubectl) is None

    # Runs of one resource follow each other: another run of `a` would be there by now.
    kubectl.apply(echo("z", labels=_ON))
    wait_for_text(kubectl, operator, "hello nothing", "z")
    chosen, ended = "spec: now matches selector and when", f"spec: {_NO_LONGER}"
    assert _causes(operator, "a") == ["spec: created", ended, chosen, ended]
    assert len(operator.lines("Deselected")) == 2
    assert operator.metric("operator_runner_runs_total", outcome="succeeded") >= 4
    kubectl("delete", KIND, "never")
    eventually(lambda: _causes(operator, "never"), details=operator.log)
    assert _causes(operator, "never") == ["deletion: deleted"]
    assert not operator.lines("Reconciliation failed")


@pytest.mark.slow
def test_neither_a_restart_nor_sigkill_loses_a_deselection(
    kubectl: Kubectl, operator: Operator, project: Path
) -> None:
    """The label goes while the operator is down, and the operator is killed during the run."""
    _write(project, _BEGIN, _WAIT)
    operator.start()
    kubectl.apply(echo("never"), echo(labels=_ON))
    wait_for_text(kubectl, operator, "hello nothing")
    _wait_until_successful(kubectl, operator)
    operator.terminate()
    _unlabel(kubectl)

    operator.start()
    eventually(lambda: kubectl.get("configmap", "begun"), details=operator.log)
    operator.kill()
    assert _is_marked(kubectl)
    assert text_of(kubectl) is not None

    kubectl("delete", "configmap", "begun")
    operator.start()
    eventually(lambda: kubectl.get("configmap", "begun"), details=operator.log)
    kubectl("create", "configmap", "go")
    _wait_until_unmarked(kubectl, operator)
    assert text_of(kubectl) is None
    assert _causes(operator, "a")[1:] == [f"start: {_NO_LONGER}"] * 2

    operator.terminate()
    operator.start()
    kubectl.apply(echo("z", labels=_ON))
    wait_for_text(kubectl, operator, "hello nothing", "z")
    assert len(_causes(operator, "a")) == 3
    assert len(operator.lines("Deselected")) == 1
    assert not _causes(operator, "never")


@pytest.mark.slow
def test_a_failed_deselection_is_retried_unless_something_newer_counts(
    kubectl: Kubectl, operator: Operator, project: Path
) -> None:
    """Until it succeeds, or the resource is chosen again, or deleted: then its finalizer runs."""
    _write(project, _READ, _REFUSE, finalizer=_FINALIZER)
    operator.start()
    kubectl.apply(*(echo(name, labels=_ON) for name in ("again", "deleted", "late")))
    names = ("again", "deleted", "late")
    for name in names:
        wait_for_text(kubectl, operator, "hello nothing", name)
        _wait_until_successful(kubectl, operator, name)
        _unlabel(kubectl, name)

    def failed() -> set[str]:
        return {line["name"] for line in operator.lines("Reconciliation failed")}

    def finalized() -> list[str]:
        return [line["name"] for line in operator.lines("Finalized")]

    eventually(failed, lambda found: found == set(names), details=operator.log)
    eventually(lambda: any("retry" in cause for cause in _causes(operator, "late")))
    kubectl("delete", KIND, "deleted")
    assert any("deletionTimestamp set" in cause for cause in _causes(operator, "deleted"))
    eventually(finalized, lambda names: names == ["deleted"], details=operator.log)

    kubectl.merge(KIND, "again", {"metadata": {"labels": _ON}, "spec": {"sayThis": "again"}})
    wait_for_text(kubectl, operator, "hello again", "again")
    assert _is_marked(kubectl, name="again")

    kubectl("create", "configmap", "go")
    _wait_until_unmarked(kubectl, operator, name="late")
    assert text_of(kubectl, "late") is None
    assert [line["name"] for line in operator.lines("Deselected")] == ["late"]

    # It keeps its finalizer, and is not deselected twice.
    kubectl("delete", KIND, "late")
    eventually(finalized, lambda names: names == ["deleted", "late"], details=operator.log)
    assert len(operator.lines("Deselected")) == 1


@pytest.mark.slow
def test_config_maps_and_deployments_are_deselected_too(
    kubectl: Kubectl, operator: Operator, project: Path
) -> None:
    """The annotation of the runner starts no run, though it is a generation of a Deployment."""
    copy = project / "roles" / "copy" / "tasks"
    copy.mkdir(parents=True)
    seen = _config_map(f"seen-{_META % 'name'}", state="{{ state | default('present') }}")
    (copy / "main.yml").write_text(json.dumps([{"name": "Copy", "kubernetes.core.k8s": seen}]))
    annotated = {"when": "metadata.annotations.copied == 'true'"}
    shared: Json = {
        "version": "v1",
        "role": "copy",
        "deselection": {"name": _MARK, "vars": {"state": "absent"}},
    }
    labelled = {"selector": {"matchLabels": _ON}, "watchAnnotationsChanges": True}
    watches = [
        {**shared, "kind": "ConfigMap", **labelled},
        {**shared, "kind": "Deployment", "group": "apps", **annotated},
    ]
    (project / "watches.yaml").write_text(json.dumps(watches))
    kubectl("create", "configmap", "a")
    kubectl("create", "deployment", "d", "--image=none")
    operator.start()
    kubectl("label", "configmap", "a", "on=yes")
    kubectl("annotate", "deployment", "d", "copied=true")
    for name in ("seen-a", "seen-d"):
        kubectl("wait", "--for=create", f"configmap/{name}", "--timeout=180s")
    assert _is_marked(kubectl, "configmap", "a")
    assert _is_marked(kubectl, "deployment", "d")
    kubectl("scale", "deployment", "d", "--replicas=2")
    eventually(lambda: "spec: spec.replicas" in _causes(operator, "d"), details=operator.log)

    _unlabel(kubectl, "a", "configmap")
    kubectl("annotate", "deployment", "d", "copied-")
    for kind, name in (("configmap", "a"), ("deployment", "d")):
        _wait_until_unmarked(kubectl, operator, kind, name)
        assert kubectl.get("configmap", f"seen-{name}") is None

    # Runs of one resource follow each other: another run would be there by now.
    kubectl.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "z", "labels": _ON}}
    )
    kubectl("wait", "--for=create", "configmap/seen-z", "--timeout=180s")
    chosen, ended = "spec: now matches selector and when", f"spec: {_NO_LONGER}"
    assert _causes(operator, "a") == [chosen, ended]
    assert _causes(operator, "d") == ["spec: generation 1 to 2", "spec: spec.replicas", ended]
    assert not operator.lines("Reconciliation failed", "Reconcile loop: throttling")
