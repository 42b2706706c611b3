"""`prune: true` deletes what a role no longer writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.functional.test_operator import KIND, ROLE, echo, wait_for_runs
from tests.support.kubectl import Kubectl
from tests.support.operator import Operator
from tests.support.runner_cli import RunnerCli
from tests.support.waiting import eventually

PART_OF = "applyset.kubernetes.io/part-of"
NAMES = """
- name: Write a ConfigMap for each name
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata:
        name: "{{ item }}"
        namespace: "{{ ansible_operator_meta.namespace }}"
      data:
        text: "{{ item }}"
  loop: "{{ names }}"
"""
SECRET = """
- name: Write a Secret
  when: with_secret | default(false)
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: Secret
      metadata:
        name: password
        namespace: "{{ ansible_operator_meta.namespace }}"
"""


def start(
    operator: Operator, project: Path, *, more: str = SECRET, flags: Sequence[str] = ()
) -> None:
    """Start the operator with a role of the names in the spec."""
    (project / ROLE).write_text(NAMES + more)
    watches = project / "watches.yaml"
    watches.write_text(f"{watches.read_text()}  prune: true\n")
    operator.start(*flags)


def names(kubectl: Kubectl) -> list[str]:
    """Return the objects of the tests, by name."""
    found = kubectl("get", "configmaps,secrets", "--output=name").split()
    return sorted(each.partition("/")[2] for each in found if "kube-root-ca" not in each)


def wait_for_names(kubectl: Kubectl, operator: Operator, *expected: str) -> None:
    """Wait until exactly these objects exist."""
    eventually(lambda: names(kubectl), lambda now: now == sorted(expected), details=operator.log)


def test_what_a_role_no_longer_writes_is_deleted(
    kubectl: Kubectl, operator: Operator, project: Path
) -> None:
    """Renamed objects and disabled features, also across a restart and a new version of the role.

    An Event, a log line and a metric name what was deleted; objects of others are left.
    """
    kubectl("create", "configmap", "foreign", "--from-literal=text=foreign")
    start(operator, project)
    kubectl.apply(echo(names=["a", "b"], withSecret=True))
    wait_for_names(kubectl, operator, "a", "b", "foreign", "password")

    kubectl.merge(KIND, "a", {"spec": {"names": ["b", "c"], "withSecret": False}})
    wait_for_names(kubectl, operator, "b", "c", "foreign")
    text = f"ConfigMap {kubectl.namespace}/a"
    eventually(
        lambda: kubectl("get", "events", "--field-selector=reason=Pruned", "--output=yaml"),
        lambda found: text in found,
        details=operator.log,
    )
    (line,) = operator.lines("Pruned")
    assert f"Secret {kubectl.namespace}/password" in line["objects"]
    assert operator.metric("operator_runner_pruned_objects_total", kind="Echo") == 2

    # The new version of the role no longer has any task for ConfigMaps.
    assert operator.terminate() == 0
    (project / ROLE).write_text(SECRET)
    operator.start()
    wait_for_names(kubectl, operator, "foreign")


def test_a_run_that_is_not_complete_deletes_nothing(
    kubectl: Kubectl, operator: Operator, project: Path
) -> None:
    """One that fails, rescues a failure, ends early or asks to be run again."""
    ends = """
- name: Fail
  when: how == "fail"
  ansible.builtin.fail: {msg: no}
- name: Rescue
  when: how == "rescue"
  block: [{ansible.builtin.fail: {msg: no}}]
  rescue: [{ansible.builtin.debug: {msg: rescued}}]
- name: End
  when: how == "end"
  ansible.builtin.meta: end_host
- name: Ask again
  when: how == "again"
  operator_sdk.util.requeue_after: {time: 1h}
- name: Flush
  ansible.builtin.meta: flush_handlers
"""
    start(operator, project, more=ends)
    kubectl.apply(echo(names=["a", "b"], how="none"))
    wait_for_names(kubectl, operator, "a", "b")
    runs = 1
    for how in ("rescue", "end", "again", "fail"):
        wait_for_runs(operator, runs)
        runs = int(operator.metric("reconciles_total") or 0) + 1
        kubectl.merge(KIND, "a", {"spec": {"names": ["b"], "how": how}})
    wait_for_runs(operator, runs)
    assert names(kubectl) == ["a", "b"]
    kubectl.merge(KIND, "a", {"spec": {"how": "none"}})
    wait_for_names(kubectl, operator, "b")


def test_objects_with_data_and_annotated_ones_are_kept(
    kubectl: Kubectl, operator: Operator, project: Path
) -> None:
    """Volume claims that the watch does not name, annotated objects, and those read by name."""
    claim = """
- name: Write a claim
  when: with_claim
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: PersistentVolumeClaim
      metadata: {name: data, namespace: "{{ ansible_operator_meta.namespace }}"}
      spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
- name: Read an object
  kubernetes.core.k8s_info:
    kind: ConfigMap
    name: read
    namespace: "{{ ansible_operator_meta.namespace }}"
"""
    start(operator, project, more=claim)
    kubectl.apply(echo(names=["a", "b", "read"], withClaim=True))
    wait_for_names(kubectl, operator, "a", "b", "read")
    kubectl("annotate", "configmap", "b", "operator-runner.dev/prune=disabled")
    kubectl.merge(KIND, "a", {"spec": {"names": [], "withClaim": False}})
    wait_for_names(kubectl, operator, "b", "read")
    assert kubectl.get("persistentvolumeclaim", "data") is not None
    kubectl("annotate", "configmap", "b", "operator-runner.dev/prune-")
    kubectl.merge(KIND, "a", {"spec": {"again": 1}})
    wait_for_names(kubectl, operator, "read")

    assert operator.terminate() == 0
    watches = project / "watches.yaml"
    text = watches.read_text().replace("prune: true", "prune: {kinds: [PersistentVolumeClaim]}")
    watches.write_text(text)
    operator.start()
    eventually(
        lambda: (kubectl.get("persistentvolumeclaim", "data") or {"metadata": {}})["metadata"],
        lambda metadata: not metadata or "deletionTimestamp" in metadata,
        details=operator.log,
    )


def test_orphans_are_shown_before_they_are_deleted(
    cli: RunnerCli, kubectl: Kubectl, operator: Operator, project: Path
) -> None:
    """By `diff`, by the condition Drifted with `drift: warn`, and as members in `tree`."""
    watches = project / "watches.yaml"
    watches.write_text(f"{watches.read_text()}  drift: warn\n")
    start(operator, project)
    kubectl.apply(echo(names=["a", "b"]))
    wait_for_names(kubectl, operator, "a", "b")
    eventually(
        lambda: kubectl("wait", f"{KIND}/a", "--for=condition=Successful", "--timeout=60s"),
        details=operator.log,
    )
    assert operator.terminate() == 0
    shown = json.loads(cli("tree", "echo/a", "--output=json"))
    assert [each["prune"] for each in shown["children"]] == ["member", "member"]

    (project / ROLE).write_text(NAMES.replace("{{ names }}", "{{ names[:1] }}"))
    done = cli.run("diff", "echo/a", f"--project={project}")
    assert f"--- v1 ConfigMap {kubectl.namespace}/b" in done.stdout, done
    assert "1 deleted" in done.stdout + done.stderr, done

    operator.start()
    eventually(
        lambda: kubectl("get", KIND, "a", "--output=yaml"),
        lambda text: f"ConfigMap {kubectl.namespace}/b deleted" in text,
        details=operator.log,
    )
    assert names(kubectl) == ["a", "b"]
    kubectl.merge(KIND, "a", {"spec": {"edited": True}})
    wait_for_names(kubectl, operator, "a")


def test_another_replica_knows_what_the_first_one_wrote(
    kubectl: Kubectl, make_operator: Callable[[str], Operator], project: Path
) -> None:
    """With `--shards`, after resources have moved to a new replica and back."""
    first, second = make_operator("first"), make_operator("second")
    flags = (
        "--shards=auto",
        "--leader-elect",
        "--leader-election-id=echo",
        "--leader-elect-lease-duration=20s",
        "--leader-elect-renew-deadline=15s",
        "--max-runs=2",
    )
    start(first, project, flags=flags)
    echoes = [f"r{number}" for number in range(6)]
    kubectl.apply(*(echo(name, names=[f"{name}-one", f"{name}-same"]) for name in echoes))
    same = [f"{name}-same" for name in echoes]
    wait_for_names(kubectl, first, *same, *(f"{name}-one" for name in echoes))

    second.start(*flags)
    eventually(
        lambda: second.metric("operator_runner_shard_slots", state="active"),
        lambda slots: slots > 0,
        details=second.log,
    )
    for name in echoes:
        kubectl.merge(KIND, name, {"spec": {"names": [f"{name}-two", f"{name}-same"]}})
    wait_for_names(kubectl, second, *same, *(f"{name}-two" for name in echoes))

    first.kill()
    for name in echoes:
        kubectl.merge(KIND, name, {"spec": {"names": [f"{name}-same"]}})
    wait_for_names(kubectl, second, *same)
