"""Behaviour of the operator that does not depend on its roles."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from operator_runner.devcluster import Cluster
from tests.support.kubectl import Json, Kubectl
from tests.support.operator import Operator
from tests.support.waiting import eventually

KIND = "echoes.test.example.com"
APPLIED = {
    "apply": True,
    "server_side_apply": {"field_manager": "cleanup", "force_conflicts": True},
}
ROLE = "roles/echo/tasks/main.yml"
WAIT = """
- name: Wait until the test goes on
  kubernetes.core.k8s_info:
    kind: ConfigMap
    name: go
    namespace: "{{ ansible_operator_meta.namespace }}"
  register: go
  until: go.resources != []
  retries: 3000
  delay: 0.2
"""


def echo(name: str = "a", labels: dict[str, str] | None = None, **spec: Any) -> Json:
    return {
        "apiVersion": "test.example.com/v1",
        "kind": "Echo",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": spec,
    }


def text_of(kubectl: Kubectl, name: str = "a") -> str | None:
    found = kubectl.get("configmap", name)
    return found["data"]["text"] if found else None


def wait_for_text(kubectl: Kubectl, operator: Operator, text: str, name: str = "a") -> None:
    eventually(lambda: text_of(kubectl, name), lambda now: now == text, details=operator.log)


def wait_for_runs(operator: Operator, count: int) -> None:
    """Wait until this many reconciles have ended."""
    eventually(
        lambda: operator.metric("reconciles_total"), lambda now: now >= count, details=operator.log
    )


def test_fields_and_vars_reach_the_role(kubectl: Kubectl, operator: Operator) -> None:
    """Roles get spec fields in snake case, and the vars of the watch."""
    operator.start()
    kubectl.apply(echo(sayThis="world"))
    wait_for_text(kubectl, operator, "hello world")


def test_the_clean_up_runs_before_the_deletion(
    control_plane_cluster: Cluster, kubectl: Kubectl, operator: Operator
) -> None:
    """A deleted resource is held until its finalizer's role has run, and leaves no file behind.

    The run has the deletion as its cause.
    """
    operator.start()
    kubectl.apply(echo())
    wait_for_text(kubectl, operator, "hello nothing")
    kubectl("delete", KIND, "a")
    assert kubectl.get(KIND, "a") is None
    elsewhere = Kubectl(control_plane_cluster.bin / "kubectl", "default")
    note = elsewhere.get("configmap", f"{kubectl.namespace}-a")
    assert note is not None
    assert note["data"]["text"] == "goodbye"
    assert "ownerReferences" not in note["metadata"]
    kept = operator.scratch / "work" / "test.example.com"
    eventually(kept.exists, lambda exists: not exists, details=operator.log)
    causes = [line["cause"] for line in operator.lines("Reconciling")]
    assert "deletion: deletionTimestamp set" in causes, causes


def test_objects_of_the_clean_up_outlive_the_resource(
    kubectl: Kubectl, operator: Operator, project: Path
) -> None:
    """A record exists after the deletion of the resource: the garbage collector keeps it."""
    tasks = project / "roles" / "cleanup" / "tasks" / "main.yml"
    note = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "record", "namespace": kubectl.namespace},
        "data": {"text": "it was here"},
    }
    task = {"name": "Leave a record", "kubernetes.core.k8s": {"definition": note}}
    tasks.write_text(json.dumps([task]))
    operator.start()
    kubectl.apply(echo())
    wait_for_text(kubectl, operator, "hello nothing")
    kubectl("delete", KIND, "a")
    # Objects of the role have an owner: when they are deleted, the garbage collector has run.
    eventually(lambda: text_of(kubectl), lambda text: text is None, details=operator.log)
    assert text_of(kubectl, "record") == "it was here"


def test_a_backup_by_vars_outlives_the_resource(
    kubectl: Kubectl, operator: Operator, project: Path
) -> None:
    """The role of the watch, run with the finalizer's vars, makes a backup that remains."""
    watches = project / "watches.yaml"
    watches.write_text(watches.read_text().replace("role: cleanup", "vars: {state: absent}"))
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "backup", "namespace": kubectl.namespace},
        "data": {"text": "of a"},
    }
    backup = {
        "name": "Make a backup",
        "kubernetes.core.k8s": {"definition": body},
        "when": "state | default('present') == 'absent'",
    }
    tasks = project / ROLE
    tasks.write_text(tasks.read_text() + json.dumps([backup])[1:-1].join(("- ", "\n")))
    operator.start()
    kubectl.apply(echo())
    wait_for_text(kubectl, operator, "hello nothing")
    assert text_of(kubectl, "backup") is None
    kubectl("delete", KIND, "a")
    # The role writes its own ConfigMap again, which keeps its owner and is deleted with it.
    eventually(lambda: text_of(kubectl), lambda text: text is None, details=operator.log)
    assert text_of(kubectl, "backup") == "of a"


def test_a_clean_up_may_write_existing_objects(
    kubectl: Kubectl, operator: Operator, project: Path
) -> None:
    """Foreign objects outlive the resource, after any kind of write by the finalizer."""
    ways: Json = {"patched": {}, "replaced": {"force": True}, "applied": APPLIED}
    tasks = []
    for name, how in ways.items():
        kubectl("create", "configmap", name)
        body: Json = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"text": "done"}}
        body["metadata"] = {"name": name, "namespace": kubectl.namespace}
        tasks.append({"kubernetes.core.k8s": {"definition": body, **how}})
    (project / "roles" / "cleanup" / "tasks" / "main.yml").write_text(json.dumps(tasks))
    operator.start()
    kubectl.apply(echo())
    wait_for_text(kubectl, operator, "hello nothing")
    kubectl("delete", KIND, "a")
    # Objects of the role have an owner: when they are deleted, the garbage collector has run.
    eventually(lambda: text_of(kubectl), lambda text: text is None, details=operator.log)
    assert [text_of(kubectl, name) for name in ways] == ["done"] * 3


def test_foreign_objects_are_not_taken_over(
    kubectl: Kubectl, operator: Operator, project: Path
) -> None:
    """A resource with the name of another owner's object fails; the object is unchanged."""
    watches = project / "watches.yaml"
    watches.write_text(watches.read_text() + "  ownership: refuse\n")
    kubectl("create", "configmap", "a", "--from-literal=text=theirs")
    operator.start()
    kubectl.apply(echo())
    kubectl.apply(echo("b"))
    kubectl("wait", f"{KIND}/a", "--for=condition=Failure", "--timeout=180s")
    resource = kubectl.get(KIND, "a")
    assert resource is not None
    conditions = resource["status"]["conditions"]
    (failure,) = (one for one in conditions if one["type"] == "Failure")
    message = f"ConfigMap {kubectl.namespace}/a does not belong to Echo {kubectl.namespace}/a"
    assert message in failure["message"]
    assert text_of(kubectl) == "theirs"
    wait_for_text(kubectl, operator, "hello nothing", "b")


def test_objects_of_a_predecessor_are_recreated(kubectl: Kubectl, operator: Operator) -> None:
    """A resource that finds an object of the deleted one of its name gets its own afterwards."""
    predecessor = {
        "apiVersion": "test.example.com/v1",
        "kind": "Echo",
        "name": "a",
        "uid": "00000000-0000-4000-8000-000000000000",
    }
    metadata = {
        "name": "a",
        # The object remains until the test lets it go, also if the garbage collector deletes it.
        "finalizers": ["test.example.com/hold"],
        "ownerReferences": [predecessor],
    }
    data = {"text": "of the predecessor"}
    kubectl.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
    operator.start()
    kubectl.apply(echo())
    wait_for_runs(operator, 1)
    assert text_of(kubectl) == "hello nothing"
    kubectl("delete", "configmap", "a", "--wait=false")
    kubectl.merge("configmap", "a", {"metadata": {"finalizers": None}})

    def owner() -> Json:
        found = kubectl.get("configmap", "a")
        return found["metadata"]["ownerReferences"][0] if found else {}

    resource = kubectl.get(KIND, "a")
    assert resource is not None
    uid = resource["metadata"]["uid"]
    eventually(owner, lambda now: now.get("uid") == uid, details=operator.log)


def test_a_manual_change_is_reverted_and_reported(kubectl: Kubectl, operator: Operator) -> None:
    """A kind without generation is watched as well; the log has the cause."""
    operator.start()
    kubectl.apply(echo())
    wait_for_text(kubectl, operator, "hello nothing")
    wait_for_runs(operator, 1)
    kubectl.merge("configmap", "a", {"data": {"text": "changed"}})
    wait_for_text(kubectl, operator, "hello nothing")
    wait_for_runs(operator, 2)
    cause = f"ConfigMap {kubectl.namespace}/a changed"
    eventually(lambda: any(cause in line["cause"] for line in operator.lines("Reconciled")))
    kubectl("delete", "configmap", "a")
    wait_for_text(kubectl, operator, "hello nothing")
    wait_for_runs(operator, 3)
    assert operator.metric("reconciles_total") == 3


def test_edits_during_a_run_make_one_later_run(
    kubectl: Kubectl, operator: Operator, project: Path
) -> None:
    """However many edits come while the role runs, it runs once more, with the newest."""
    role = project / ROLE
    role.write_text(role.read_text() + WAIT)
    operator.start()
    kubectl.apply(echo(sayThis="0"))
    wait_for_text(kubectl, operator, "hello 0")
    for number in range(1, 4):
        kubectl.merge(KIND, "a", {"spec": {"sayThis": str(number)}})
    kubectl("create", "configmap", "go")
    wait_for_text(kubectl, operator, "hello 3")
    wait_for_runs(operator, 2)
    assert operator.metric("reconciles_total") == 2


def test_only_resources_of_selector_and_when_run(
    kubectl: Kubectl, operator: Operator, project: Path
) -> None:
    """Only what both choose is touched; a label that comes later counts at once."""
    with (project / "watches.yaml").open("a") as watches:
        watches.write("  selector: {matchLabels: {run: 'yes'}}\n  when: spec.enabled\n")
    operator.start()
    chosen = {"run": "yes"}
    kubectl.apply(
        echo("both", chosen, enabled=True), echo("no-label", enabled=True), echo("off", chosen)
    )
    wait_for_text(kubectl, operator, "hello nothing", "both")
    kubectl("label", KIND, "no-label", "run=yes")
    wait_for_text(kubectl, operator, "hello nothing", "no-label")
    assert text_of(kubectl, "off") is None
    untouched = kubectl.get(KIND, "off")
    assert untouched is not None
    assert "finalizers" not in untouched["metadata"]


def test_one_of_two_replicas_leads(
    kubectl: Kubectl, make_operator: Callable[[str], Operator]
) -> None:
    """The standby is ready and idle, and takes over when the leader dies without a word."""
    flags = (
        "--leader-elect",
        "--leader-election-id=pair",
        f"--leader-election-namespace={kubectl.namespace}",
        "--leader-elect-lease-duration=15s",
        "--leader-elect-renew-deadline=10s",
    )
    first = make_operator("first").start(*flags)
    eventually(
        lambda: first.metric("leader_election_master_status", name="pair"), details=first.log
    )
    second = make_operator("second").start(*flags)
    kubectl.apply(echo())
    wait_for_text(kubectl, first, "hello nothing")
    assert second.metric("reconciles_total") == 0
    assert second.probe("readyz") == 200
    first.kill()
    kubectl.merge(KIND, "a", {"spec": {"sayThis": "again"}})
    wait_for_text(kubectl, second, "hello again")


def test_not_ready_until_the_kind_is_watched(operator: Operator, kubectl: Kubectl) -> None:
    """Without the CRD the operator is live but not ready; it continues when the CRD exists."""
    for file in ("watches.yaml", "crd.yaml"):
        text = (operator.project / file).read_text()
        (operator.project / file).write_text(text.replace("test.example.com", "late.example.com"))
    operator.start(wait=False)
    eventually(lambda: operator.lines("Waiting for a watched kind"), details=operator.log)
    eventually(lambda: operator.probe("healthz"), (200).__eq__)
    assert operator.probe("readyz") == 500
    kubectl("apply", f"--filename={operator.project / 'crd.yaml'}")
    eventually(lambda: operator.probe("readyz"), lambda code: code == 200, details=operator.log)
    resource = echo() | {"apiVersion": "late.example.com/v1"}
    kubectl.wait_for_kinds("echoes.late.example.com")
    kubectl.apply(resource)
    wait_for_text(kubectl, operator, "hello nothing")
    # A CRD that goes is waited for as one that has not come yet.
    kubectl("delete", f"--filename={operator.project / 'crd.yaml'}")
    eventually(lambda: operator.probe("readyz"), lambda code: code == 500, details=operator.log)
    assert operator.probe("healthz") == 200
    kubectl("apply", f"--filename={operator.project / 'crd.yaml'}")
    eventually(lambda: operator.probe("readyz"), lambda code: code == 200, details=operator.log)
    kubectl.wait_for_kinds("echoes.late.example.com")
    kubectl.apply(resource)
    wait_for_text(kubectl, operator, "hello nothing")
    # Another kind of this name would be ambiguous for other tests.
    kubectl("delete", f"--filename={operator.project / 'crd.yaml'}")


def test_a_bad_watches_file_stops_the_start(operator: Operator, project: Path) -> None:
    """Every problem is printed with file, line and hint, and the exit status is 1."""
    (project / "watches.yaml").write_text(
        "- version: v1\n  kind: Echo\n  role: nowhere\n- kind: X\n"
    )
    operator.start(wait=False)
    assert operator.wait() == 1
    log = operator.log()
    assert "watches.yaml:3" in log
    assert "nowhere" in log
    assert "version must not be empty" in log


def test_private_files_are_private(kubectl: Kubectl, operator: Operator) -> None:
    """Files of a run are private, and its credentials are deleted after it."""
    operator.start()
    kubectl.apply(echo())
    wait_for_text(kubectl, operator, "hello nothing")
    wait_for_runs(operator, 1)
    work = operator.scratch / "work"
    assert work.stat().st_mode & 0o077 == 0
    private = work / "test.example.com" / "v1" / "Echo" / kubectl.namespace / "a"
    assert private.stat().st_mode & 0o077 == 0
    assert not (private / "env" / "kubeconfig").exists()
    (command,) = private.glob("artifacts/*[!t]/command")
    assert "env" not in json.loads(command.read_text())


def test_a_field_that_ansible_acts_on_does_not_reach_the_role(
    kubectl: Kubectl, operator: Operator, tmp_path: Path
) -> None:
    """The resource runs without it and has an Event that names it; nothing was executed."""
    touched = tmp_path / "touched"
    command = f"-o ProxyCommand='touch {touched}'"
    operator.start()
    kubectl.apply(
        echo(sayThis="world", ansibleConnection="ssh", ansibleSshCommonArgs=command, hosts="all")
    )

    wait_for_text(kubectl, operator, "hello world")

    def notes() -> list[str]:
        events = kubectl.list("events.events.k8s.io")
        return [event["note"] for event in events if event["reason"] == "ReservedFieldNames"]

    (note,) = eventually(notes, bool, details=operator.log)
    for field in ("spec.ansibleConnection", "spec.ansibleSshCommonArgs", "spec.hosts"):
        assert field in note
    assert not touched.exists()
