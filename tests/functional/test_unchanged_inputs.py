"""`skipUnchanged`: runs that would change nothing are skipped, and all others are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.functional.test_run_history import KIND, ROLE, wait_until_idle, why
from tests.support.kubectl import Json, Kubectl
from tests.support.operator import Operator
from tests.support.waiting import eventually

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
    """An operator that is started again and again; each start has a log of its own."""

    def __init__(self, operator: Operator, kubectl: Kubectl) -> None:
        self._operator, self._kubectl = operator, kubectl
        self._seen = (0, 0)

    def run(self) -> tuple[set[str], set[str]]:
        """Start it until it is idle, and end it; return which resources ran and were skipped."""
        self._operator.start(
            "--leader-elect",
            "--leader-election-id=echo",
            f"--leader-election-namespace={self._kubectl.namespace}",
            "--keep-runs",
        )
        wait_for_all = eventually(
            self._since_start,
            lambda found: len(found[0] | found[1]) == len(NAMES),
            details=self._operator.log,
        )
        assert wait_for_all
        wait_until_idle(self._operator)
        found = self._since_start()
        assert self._operator.terminate() == 0
        self._seen = (len(self._lines("Reconciled")), len(self._lines("Skipped reconciliation")))
        return found

    def until_skipped(self) -> None:
        """Start it until every resource has been run once without a change."""
        eventually(self.run, lambda found: found[1] == set(NAMES), details=self._operator.log)

    def _since_start(self) -> tuple[set[str], set[str]]:
        ran = self._lines("Reconciled")[self._seen[0] :]
        skipped = self._lines("Skipped reconciliation")[self._seen[1] :]
        return set(ran), set(skipped)

    def _lines(self, message: str) -> list[str]:
        return [line["name"] for line in self._operator.lines(message)]


@pytest.fixture
def restarts(kubectl: Kubectl, operator: Operator, project: Path) -> Restarts:
    """Return the operator after a start with all resources, none of which has anything to do."""
    with (project / "watches.yaml").open("a") as watches:
        watches.write("  skipUnchanged: true\n")
    (project / ROLE).write_text(TASKS)
    for name in NAMES:
        kubectl.apply(resource(name))
    found = Restarts(operator, kubectl)
    assert found.run() == (set(NAMES), set())
    found.until_skipped()
    return found


def test_a_restart_runs_exactly_what_has_changed_meanwhile(
    kubectl: Kubectl, operator: Operator, project: Path, restarts: Restarts
) -> None:
    """Nothing, then dependents edited and deleted by hand, what the role reads, and the role."""
    assert restarts.run() == (set(), set(NAMES))
    text = why("echo/a", f"--work-dir={operator.scratch / 'work'}")
    assert "skipped: inputs unchanged" in text

    kubectl.merge("configmap", "a", {"data": {"text": "by hand"}})
    kubectl("delete", "configmap", "b")
    assert restarts.run() == ({"a", "b"}, {"c", "d"})
    assert data_of(kubectl, "a")["text"] == data_of(kubectl, "b")["text"] == "hello"

    kubectl("create", "configmap", "settings", "--from-literal=color=red")
    assert restarts.run() == (set(NAMES), set())
    assert {data_of(kubectl, name)["color"] for name in NAMES} == {"red"}

    restarts.until_skipped()
    role = project / ROLE
    role.write_text(role.read_text().replace("default('nothing') }}", "default('nothing') }}!"))
    assert restarts.run() == (set(NAMES), set())
    assert {data_of(kubectl, name)["text"] for name in NAMES} == {"hello!"}


def test_dependents_of_skipped_resources_are_watched(
    kubectl: Kubectl, operator: Operator, restarts: Restarts
) -> None:
    """After a start without runs, an object that is deleted is created again."""
    del restarts
    operator.start(
        "--leader-elect",
        "--leader-election-id=echo",
        f"--leader-election-namespace={kubectl.namespace}",
        "--keep-runs",
    )
    skipped = "operator_runner_runs_skipped_total"
    eventually(
        lambda: operator.metric(skipped, trigger="start", reason="inputs unchanged"),
        lambda number: number == len(NAMES),
        details=operator.log,
    )
    kubectl("delete", "configmap", "c")
    eventually(
        lambda: data_of(kubectl, "c").get("text"),
        lambda text: text == "hello",
        details=operator.log,
    )
    assert kubectl.get(KIND, "c") is not None
