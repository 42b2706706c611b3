"""Scheduling, timeouts and superseding, and the API requests of a reconcile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.functional.conftest import PROJECT
from tests.functional.test_operator import (
    KIND,
    ROLE,
    echo,
    wait_for_runs,
    wait_for_text,
)
from tests.support.kubectl import Kubectl
from tests.support.operator import Operator
from tests.support.processes import new_nap, sleepers
from tests.support.waiting import eventually

RESOURCES = 500
CAP = 2


@pytest.mark.slow
def test_an_edit_precedes_the_runs_after_a_restart(
    kubectl: Kubectl, make_operator: Callable[[str], Operator], project: Path
) -> None:
    """Of all resources that wait since the start, the one that was edited runs next."""
    (project / ROLE).write_text("- ansible.builtin.debug: {msg: done}\n")
    names = [f"e{number:03}" for number in range(RESOURCES)]
    kubectl.apply(*(echo(name) for name in names))
    first = make_operator("first").start(f"--max-runs={CAP}")
    wait_for_runs(first, 1)
    first.kill()
    second = make_operator("second").start(f"--max-runs={CAP}", "--zap-log-level=debug")
    wait_for_runs(second, 1)
    begun = {line["name"] for line in second.lines("Reconciling")}
    edited = next(name for name in reversed(names) if name not in begun)
    kubectl.merge(KIND, edited, {"spec": {"sayThis": "now"}})
    eventually(
        lambda: [line for line in second.lines("Reconciled") if line["name"] == edited],
        details=second.log,
    )
    assert len(second.lines("Reconciled")) < RESOURCES
    # One may have left the queue already: it logs its start a moment later.
    assert len(begun_between(second, edited)) <= 1


def begun_between(operator: Operator, edited: str) -> list[str]:
    """Return the runs that began after the edit was seen and before the edited resource's own."""
    log = operator.lines("Queued", "Reconciling")
    queued = next(
        place
        for place, line in enumerate(log)
        if line["msg"] == "Queued" and line["name"] == edited and line["cause"].startswith("spec")
    )
    begun = [line["name"] for line in log[queued:] if line["msg"] == "Reconciling"]
    return begun[: begun.index(edited)]


def slow_role(project: Path, nap: str) -> None:
    """Write a role that prints its variables, then sleeps if the spec has a duration."""
    role = project / ROLE
    role.write_text(
        role.read_text()
        + f"""
- name: Sleep, with a daemon beside
  ansible.builtin.shell: sleep {nap} & sleep {nap}
  when: sleepy | default(false)
"""
    )
    with (project / "watches.yaml").open("a") as watches:
        watches.write("  supersede: true\n")


def test_an_edit_ends_the_run_and_is_run_at_once(
    kubectl: Kubectl, operator: Operator, project: Path
) -> None:
    """A run that would never end is ended with its daemons; nothing counts as a failure."""
    nap = new_nap()
    slow_role(project, nap)
    operator.start()
    kubectl.apply(echo(sayThis="first", sleepy=True))
    eventually(lambda: sleepers(nap), lambda found: len(found) == 2, details=operator.log)
    kubectl(
        "patch", KIND, "a", "--subresource=status", "--type=merge", '--patch={"status": {"x": 1}}'
    )
    kubectl("label", KIND, "a", "b=c")
    kubectl.merge(KIND, "a", {"spec": {"sayThis": "second", "sleepy": False}})
    wait_for_text(kubectl, operator, "hello second")
    eventually(lambda: sleepers(nap), lambda found: found == [])
    eventually(lambda: conditions(kubectl).get("Successful"), lambda now: now == "True")
    assert conditions(kubectl)["Failure"] == "False"
    assert [line["by"] for line in operator.lines("Run superseded")] == ["generation 1 to 2"]
    assert operator.metric("operator_runner_runs_total", outcome="superseded") == 1
    assert operator.metric("operator_runner_runs_total", outcome="failed") == 0
    assert operator.metric("workqueue_retries_total") == 0
    # Events are ordered: an event of the ended run would have started a run before this one.
    kubectl.apply(echo("later"))
    eventually(
        lambda: [line["name"] for line in operator.lines("Reconciled")],
        lambda names: "later" in names,
        details=operator.log,
    )
    assert [line["name"] for line in operator.lines("Reconciled")] == ["a", "later"]


def test_a_deletion_ends_the_run_and_cleans_up(
    kubectl: Kubectl, operator: Operator, project: Path
) -> None:
    """A run of an obsolete spec does not delay the current one."""
    nap = new_nap()
    slow_role(project, nap)
    operator.start()
    kubectl.apply(echo(sleepy=True))
    eventually(lambda: sleepers(nap), lambda found: len(found) == 2, details=operator.log)
    kubectl("delete", KIND, "a", "--timeout=180s")
    eventually(lambda: sleepers(nap), lambda found: found == [])
    assert [line["by"] for line in operator.lines("Run superseded")] == ["being deleted"]


def conditions(kubectl: Kubectl) -> dict[str, str]:
    """Return the status of each condition of the resource."""
    found = kubectl.get(KIND, "a") or {}
    listed = found.get("status", {}).get("conditions", [])
    return {condition["type"]: condition["status"] for condition in listed}


def test_one_edit_is_one_reconcile(kubectl: Kubectl, operator: Operator) -> None:
    """Neither the status nor writes of the role reconcile the resource again."""
    operator.start()
    kubectl.apply(echo(sayThis="1"))
    wait_for_runs(operator, 1)
    for count in (2, 3):
        kubectl.merge(KIND, "a", {"spec": {"sayThis": str(count)}})
        wait_for_text(kubectl, operator, f"hello {count}")
        wait_for_runs(operator, count)
    # Events are ordered: another run for one of the edits would have started before this one.
    kubectl.apply(echo("later"))
    wait_for_text(kubectl, operator, "hello nothing", "later")
    wait_for_runs(operator, 4)
    causes = [line["cause"] for line in operator.lines("Reconciled") if line["name"] == "a"]
    assert causes == ["spec: created", "spec: spec.sayThis", "spec: spec.sayThis"]


def requests(kubectl: Kubectl) -> Counter[str]:
    """Return the number of requests by kind of request, without watches."""
    families = text_string_to_metric_families(kubectl("get", "--raw=/metrics"))
    sent: Counter[str] = Counter()
    for sample in (sample for family in families for sample in family.samples):
        labels = sample.labels
        if sample.name == "apiserver_request_total" and labels["verb"] != "WATCH":
            words = (labels[name] for name in ("verb", "group", "resource", "subresource"))
            sent[" ".join(filter(None, words))] += int(sample.value)
    return sent


@pytest.fixture
def own_kind(kubectl: Kubectl, project: Path) -> Iterator[Callable[[], None]]:
    """Let the project watch a kind of its own: nothing else asks for its objects."""
    text = (PROJECT / "crd.yaml").read_text()
    for name, own in (("echoes", "counteds"), ("echo", "counted"), ("Echo", "Counted")):
        text = text.replace(name, own)
    watches = project / "watches.yaml"
    watches.write_text(watches.read_text().replace("Echo", "Counted"))
    kubectl("apply", "--filename=-", input_=text)
    try:
        kubectl.wait_for_kinds("counteds.test.example.com")
        yield lambda: kubectl.apply(echo() | {"kind": "Counted"})
    finally:
        kubectl("delete", "crd", "counteds.test.example.com", "--wait=false")


def test_a_steady_reconcile_costs_one_request(
    kubectl: Kubectl, operator: Operator, project: Path, own_kind: Callable[[], None]
) -> None:
    """In addition to the requests of the role, there is one read and no write."""
    with (project / "watches.yaml").open("a") as watches:
        watches.write("  reconcilePeriod: 1s\n")
    operator.start()
    own_kind()
    wait_for_runs(operator, 2)
    before = requests(kubectl)
    done = int(operator.metric("reconciles_total"))
    wait_for_runs(operator, done + 10)
    operator.terminate()
    sent, ended = requests(kubectl) - before, len(operator.lines("Reconciled"))
    runs = ended - done
    assert runs >= 10
    # One may have been active at each end, some end while the API server answers, and controllers
    # of the cluster list each new kind once.
    assert runs - 1 <= sent.pop("GET test.example.com counteds") < 2 * (runs - 1)
    # Requests of the role, and those of the cluster's controllers each second. They send others
    # now and then, but not for each reconcile.
    assert {what for what, times in sent.items() if times >= runs - 1} <= {
        "GET configmaps",
        "PATCH configmaps",
        "GET openapi/v3",
        "GET coordination.k8s.io leases",
        "PUT coordination.k8s.io leases",
    }
