"""The bench runs with little work; its figures are not checked here."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from bench.api import (
    APP,
    DEPLOYMENT,
    INGRESS,
    LONG,
    NGINX,
    SERVICE,
    SERVICE_ACCOUNT,
    Kind,
    definition,
    is_successful,
)
from bench.breakdown import measure_breakdown
from bench.churn import churn
from bench.edit_files import files_of_an_edit
from bench.edits import Subject
from bench.environment import BenchEnvironment, Setup
from bench.errors import BenchError
from bench.memory import measure_memory
from bench.resources import create_and_wait, names
from bench.user_comparison import compare_project
from bench.user_project import UserProject, parse_edit, read_project

_TINY = Kind("shop.example.com/v1", "Tiny")
_ROLE = """
- name: Write the Deployment
  kubernetes.core.k8s:
    definition:
      apiVersion: apps/v1
      kind: Deployment
      metadata:
        name: "{{ ansible_operator_meta.name }}"
        namespace: "{{ ansible_operator_meta.namespace }}"
      spec:
        selector: {matchLabels: {app: tiny}}
        template:
          metadata: {labels: {app: tiny}}
          spec: {containers: [{name: app, image: app}]}
- name: Wait for its Pod
  kubernetes.core.k8s_info:
    kind: Pod
    namespace: "{{ ansible_operator_meta.namespace }}"
    wait: true
    wait_timeout: 60
  register: pods
- name: Ask the Pod
  kubernetes.core.k8s_exec:
    pod: "{{ pods.resources[0].metadata.name }}"
    namespace: "{{ ansible_operator_meta.namespace }}"
    command: version
  register: answer
- name: Remember the answer
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata:
        name: "{{ ansible_operator_meta.name }}"
        namespace: "{{ ansible_operator_meta.namespace }}"
      data: {answer: "{{ answer.stdout }}", size: "{{ size | string }}"}
- name: Refuse
  ansible.builtin.fail:
    msg: too large
  when: size | int > 5
"""


@pytest.mark.parametrize("kind", [NGINX, pytest.param(LONG, marks=pytest.mark.slow)])
def test_an_edit_is_one_reconcile(bench_environment: BenchEnvironment, kind: Kind) -> None:
    """It takes time and CPU time, and so does a run that changes nothing."""
    with bench_environment.site(Setup(kind)) as site:
        subject = Subject(site, kind)
        subject.create()
        costs = [subject.edit(), subject.edit(), subject.edit(), subject.resync()]
        # A controller on a busy machine may observe an edit so late that its status needs a run.
        assert min(subject.runs) == 1
    assert all(min(cost.wall, cost.cpu) > 0 for cost in costs)


@pytest.mark.slow
def test_both_roles_fit_into_one_operator(bench_environment: BenchEnvironment) -> None:
    """ansible-operator is compared with both of them in one process."""
    with bench_environment.site(Setup(NGINX, more=(LONG,))) as site:
        for kind in (NGINX, LONG):
            Subject(site, kind).create()


@pytest.fixture
def tiny_project(tmp_path: Path) -> UserProject:
    """Return a project as a user has one."""
    group, version = _TINY.api_version.split("/")
    watch = {"group": group, "version": version, "kind": _TINY.name, "role": "tiny"}
    resource = {"apiVersion": _TINY.api_version, "kind": _TINY.name, "metadata": {"name": "a"}}
    crd = definition(_TINY)
    crd["spec"]["group"] = group
    crd["metadata"]["name"] = f"{crd['spec']['names']['plural']}.{group}"
    files = {
        "watches.yaml": yaml.safe_dump([watch]),
        "roles/tiny/tasks/main.yml": _ROLE,
        "config/crd/tiny.yaml": yaml.safe_dump(crd),
        "sample.yaml": yaml.safe_dump({**resource, "spec": {"size": 1}}),
    }
    for name, text in files.items():
        file = tmp_path / "tiny" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return read_project(tmp_path / "tiny", tmp_path / "tiny" / "sample.yaml")


def test_a_project_of_a_user_is_compared(
    bench_environment: BenchEnvironment, tiny_project: UserProject
) -> None:
    """Its Pods become ready, and commands in them succeed; here both operators are the same."""
    rows = {
        row.work: row
        for row in compare_project(
            bench_environment,
            tiny_project,
            parse_edit("spec.size=2"),
            output="v1",
            repetitions=1,
            opponent=BenchEnvironment.site,
            quiet=2,
        )
    }
    assert rows["objects that differ"].value == 0
    for work in ("installation", "edit spec.size=2", "run that changes nothing"):
        assert rows[f"{work}: runs"].value >= 1
        assert rows[f"{work}: CPU until quiet"].value > 0


def test_a_failed_task_of_a_user_is_named(
    bench_environment: BenchEnvironment, tiny_project: UserProject
) -> None:
    """With its message, instead of figures of a run that has not done its work."""
    tiny_project.resource["spec"]["size"] = 6
    with pytest.raises(BenchError, match="operator-runner: task 'Refuse' has failed: too large"):
        list(
            compare_project(
                bench_environment, tiny_project, None, opponent=BenchEnvironment.site, quiet=2
            )
        )


@pytest.mark.slow
def test_applications_get_their_four_objects(bench_environment: BenchEnvironment) -> None:
    """Each of the applications is Successful, and there are no others."""
    with bench_environment.site(Setup(APP)) as site:
        create_and_wait(site, APP, 3, {"version": "1.0"})
        apps = site.api.list(APP, site.namespace)
        assert {app["metadata"]["name"] for app in apps if is_successful(app)} == names(3)
        for kind in (SERVICE, DEPLOYMENT, INGRESS, SERVICE_ACCOUNT):
            found = {body["metadata"]["name"] for body in site.api.list(kind, site.namespace)}
            assert found - {"default"} == names(3)


@pytest.mark.slow
def test_status_churn_is_coalesced(bench_environment: BenchEnvironment) -> None:
    """Never more runs than changes of the field, and one without wakeOn."""
    rows = list(churn(bench_environment, 10))
    assert [row.value <= (row.goal.limit or 0) for row in rows] == [True, True]


@pytest.mark.slow
def test_the_time_of_a_run_is_broken_down(bench_environment: BenchEnvironment) -> None:
    """Every task and request of the role has its line."""
    lines = {name.strip() for name, _ in measure_breakdown(bench_environment, 1).table}
    assert {"fork", "play set-up", "API requests, within the above"} <= lines
    assert {"Write the ConfigMap", "PATCH configmaps"} <= lines


@pytest.mark.slow
def test_the_memory_of_runs_is_measured(bench_environment: BenchEnvironment) -> None:
    """That of an operator, and of each of its runs while they are inside a task."""
    assert all(row.value > 0 for row in measure_memory(bench_environment))


def test_the_files_of_an_edit_are_counted(bench_environment: BenchEnvironment) -> None:
    """Those of each step, and none of a feature that only a key of the watch switches on."""
    functions = files_of_an_edit(bench_environment, idle_seconds=1)
    for file in ("reconcile/reconciler.py", "ansible/executor.py", "proxy/server.py"):
        assert functions[file], functions
    assert not {"reconcile/schedule.py", "reconcile/pruning.py"} & set(functions)
