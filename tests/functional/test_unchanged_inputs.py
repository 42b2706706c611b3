"""`skipUnchanged`: runs that would change nothing are skipped, and all others are not."""

from __future__ import annotations

import json
from pathlib import Path

from tests.functional.test_past_runs import ROLE, wait_until_idle, why
from tests.support.kubectl import Json, Kubectl
from tests.support.operator import Operator
from tests.support.runner_cli import RunnerCli
from tests.support.waiting import eventually

SKIPPED = "operator_runner_runs_skipped_total"
NAMES = ("a", "b", "c", "d")
TASKS = """
- name: Read the settings of all resources
  kubernetes.core.k8s_info:
    api_version: v1
    kind: ConfigMap
    name: settings
    namespace: "{{ ansible_operator_meta.namespace }}"
  register: settings
- name: Write the text and the settings
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata:
        name: "{{ ansible_operator_meta.name }}"
        namespace: "{{ ansible_operator_meta.namespace }}"
      data:
        text: "{{ say_this | default('nothing') }}"
        color: "{{ (settings.resources | first).data.color if settings.resources else 'none' }}"
"""


def resource(name: str) -> Json:
    return {
        "apiVersion": "test.example.com/v1",
        "kind": "Echo",
        "metadata": {"name": name},
        "spec": {"sayThis": "hello"},
    }


def data_of(kubectl: Kubectl, name: str) -> Json:
    found = kubectl.get("configmap", name) or {}
    data: Json = found.get("data") or {}
    return data


class Restarts:
    """An operator that is started again and again, with ConfigMaps for its records."""

    def __init__(self, operator: Operator, kubectl: Kubectl) -> None:
        self._operator, self._kubectl = operator, kubectl
        self._seen = (0, 0)

    def start(self) -> tuple[set[str], set[str]]:
        """Start it and wait until it is idle; return which resources ran and were skipped."""
        self._seen = (len(self._lines("Reconciled")), len(self._lines("Skipped reconciliation")))
        self._operator.start(
            "--leader-elect",
            "--leader-election-id=echo",
            f"--leader-election-namespace={self._kubectl.namespace}",
            "--keep-runs",
        )
        eventually(
            self._since_start,
            lambda found: found[0] | found[1] == set(NAMES),
            details=self._operator.log,
        )
        wait_until_idle(self._operator)
        return self._since_start()

    def stop(self) -> None:
        """End it."""
        assert self._operator.terminate() == 0

    def _since_start(self) -> tuple[set[str], set[str]]:
        ran = self._lines("Reconciled")[self._seen[0] :]
        skipped = self._lines("Skipped reconciliation")[self._seen[1] :]
        return set(ran), set(skipped)

    def _lines(self, message: str) -> list[str]:
        return [line["name"] for line in self._operator.lines(message)]


def test_a_restart_runs_exactly_what_has_changed_meanwhile(
    kubectl: Kubectl, operator: Operator, project: Path, control_plane: Path
) -> None:
    """Dependents edited and deleted by hand, the role, and what the role reads.

    Dependents of skipped resources are watched. After the first start, which writes objects, a
    second one is needed until runs are known to change nothing. Kept runs survive each restart.
    """
    with (project / "watches.yaml").open("a") as watches:
        watches.write("  skipUnchanged: true\n")
    role = project / ROLE
    role.write_text(TASKS)
    for name in NAMES:
        kubectl.apply(resource(name))
    restarts = Restarts(operator, kubectl)
    ran, _ = restarts.start()
    assert ran == set(NAMES)
    restarts.stop()
    restarts.start()
    cli = RunnerCli(control_plane, kubectl.namespace)
    at_work = f"--work-dir={operator.scratch / 'work'}"

    def runs_of_c() -> set[str]:
        items = json.loads(cli("runs", "echo/c", at_work, "-o", "json"))["items"]
        return {each["id"] for each in items if each["outcome"] != "skipped"}

    def restart_after_edits() -> tuple[set[str], set[str]]:
        before = runs_of_c()
        restarts.stop()
        kubectl.merge("configmap", "a", {"data": {"text": "by hand"}})
        kubectl("delete", "configmap", "b")
        found = restarts.start()
        # The new process has read them from the ConfigMaps; one more run leaves two of three.
        assert before & runs_of_c()
        return found

    # Again if the API server has begun or ceased to serve a kind meanwhile, which runs all.
    eventually(
        restart_after_edits,
        lambda found: found == ({"a", "b"}, {"c", "d"}),
        details=operator.log,
    )
    assert data_of(kubectl, "a")["text"] == data_of(kubectl, "b")["text"] == "hello"
    assert "skipped: inputs unchanged" in why("echo/c", f"--work-dir={operator.scratch / 'work'}")
    listed = cli("runs", "echo/c", at_work).splitlines()[1]
    assert "Skipped" in listed
    assert "start; skipped: inputs unchanged" in listed
    assert "skipped: inputs unchanged" in cli("get", "echo/c", at_work)
    [item] = json.loads(cli("get", "echo/c", at_work, "-o", "json"))["items"]
    assert item["skipReason"] == "skipped: inputs unchanged"
    assert operator.metric(SKIPPED, trigger="start", reason="inputs unchanged") == 2
    kubectl("delete", "configmap", "c")
    eventually(
        lambda: data_of(kubectl, "c").get("text"),
        lambda text: text == "hello",
        details=operator.log,
    )
    restarts.stop()

    # Only a comment: the runs change nothing, and the next start would skip them.
    role.write_text(f"# edited\n{TASKS}")
    ran, _ = restarts.start()
    assert "d" in ran
    restarts.stop()

    kubectl("create", "configmap", "settings", "--from-literal=color=red")
    ran, _ = restarts.start()
    assert "d" in ran
    assert data_of(kubectl, "d")["color"] == "red"
