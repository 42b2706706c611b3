"""Modules that share a process: results with and without sharing, and processes of their own."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from operator_runner.ansible.executor import open_launcher
from operator_runner.core.settings import AnsibleSettings
from tests.contract.ansible.launchers.projects import Project, library
from tests.contract.ansible.launchers.records import Record, differences

_SETTINGS = AnsibleSettings(skip_facts=True)
_PATCH = "shared-module-process"
_OBJECT = "{apiVersion: v1, kind: ConfigMap, metadata: {name: shared, namespace: default}}"
_CHILDREN = "ps -o pid= --ppid $(ps -o ppid= -p $(ps -o ppid= -p $$))"
"""Prints the children of the supervisor. The shell is a child of the play, as its pipe lookup."""


def _look(name: str) -> str:
    return f"""
- name: {name}
  debug: {{msg: '{{{{ lookup("pipe", children).split() }}}}'}}
"""


_READ = """
- name: {name}
  kubernetes.core.k8s_info: {{kind: Namespace, name: {namespace}}}
"""
_SEQUENCE = f"""
- name: Create
  kubernetes.core.k8s: &object
    definition: {_OBJECT}
    hidden_fields: &hidden
      - metadata.managedFields
      - metadata.resourceVersion
      - metadata.uid
      - metadata.creationTimestamp
- name: Repeat
  kubernetes.core.k8s: *object
- name: Secret arguments
  kubernetes.core.k8s_info: {{kind: ConfigMap, name: no-such, namespace: default}}
  no_log: true
- name: Rescued
  block:
    - name: Wrong arguments
      kubernetes.core.k8s: {{state: nonsense}}
  rescue:
    - name: After wrong arguments
      kubernetes.core.k8s: *object
- name: No such kind
  kubernetes.core.k8s_info: {{api_version: example.com/v1, kind: Nothing}}
- name: RejectedObject
  kubernetes.core.k8s:
    definition: {{apiVersion: v1, kind: ConfigMap, metadata: {{name: NO, namespace: default}}}}
  failed_when: false
- name: Another environment
  kubernetes.core.k8s: *object
  environment: {{OTHER: value}}
- name: Another user
  kubernetes.core.k8s_info: {{kind: Namespace, name: default, impersonate_user: nobody}}
  ignore_errors: true
- name: Check mode
  kubernetes.core.k8s:
    definition: {_OBJECT}
    state: absent
    hidden_fields: *hidden
  check_mode: true
- name: Own process
  own:
- name: Items
  kubernetes.core.k8s:
    definition: {{apiVersion: v1, kind: ConfigMap, metadata: {{name: shared, namespace: default}},
                  data: {{item: '{{{{ item }}}}'}}}}
    hidden_fields: *hidden
  loop: [a, b, b]
  diff: true
- name: Warned
  kubernetes.core.k8s_info: {{kind: Namespace, name: default, unknown: 1}}
  ignore_errors: true
- name: Delete
  kubernetes.core.k8s: {{state: absent, definition: {_OBJECT}}}
"""
_FILES = library(
    own="""
module = AnsibleModule({})
module.exit_json(cwd=os.getcwd(), files=len(os.listdir('/proc/self/fd')))
"""
)


@pytest.fixture
def kubeconfig(control_plane: Path) -> str:
    """Return the kubeconfig of the control plane."""
    return control_plane.read_text()


async def _run(kubeconfig: str, folder: Path, tasks: str, *disabled: str) -> Record:
    """Run tasks by a new fork server, in a directory that each run finds empty."""
    project = Project(tasks, _FILES, variables={"children": _CHILDREN}, kubeconfig=kubeconfig)
    async with open_launcher("warm", replace(_SETTINGS, disabled_patches=disabled)) as launcher:
        record = await project.run(launcher, folder / "run" / "site")
    (folder / "run").rename(folder / os.urandom(8).hex())
    return record


async def test_a_sequence_of_modules_gives_the_same_with_and_without_sharing(
    kubeconfig: str, tmp_path: Path
) -> None:
    """After failures, in loops, and with other environments, users and modules between them."""
    shared = await _run(kubeconfig, tmp_path, _SEQUENCE)
    separate = await _run(kubeconfig, tmp_path, _SEQUENCE, _PATCH)
    assert shared.tasks()[-1] == "Delete"
    found = differences(("shared", "separate"), shared, separate)
    assert not found, found


async def test_consecutive_modules_share_a_process(kubeconfig: str, tmp_path: Path) -> None:
    """The process that waits after a module is the one that waits after the next modules."""
    names = ("default", "kube-public", "kube-system")
    tasks = "".join(
        _READ.format(name=f"Read {name}", namespace=name) + _look(f"After {name}") for name in names
    )
    record = await _run(kubeconfig, tmp_path, tasks)
    assert record.outcome.successful, record.outcome.failures
    waiting = [set(record.result(f"After {name}")["msg"]) for name in names]
    # The play itself, and the process of all three modules.
    assert len(waiting[0] & waiting[1] & waiting[2]) == 2, waiting


async def test_a_module_that_fails_ends_its_process(kubeconfig: str, tmp_path: Path) -> None:
    """Modules after it have another process."""
    tasks = (
        _READ.format(name="Before", namespace="default")
        + _look("Look before")
        + "- name: Between\n  kubernetes.core.k8s: {state: nonsense}\n  ignore_errors: true"
        + _READ.format(name="After", namespace="default")
        + _look("Look after")
    )
    record = await _run(kubeconfig, tmp_path, tasks)
    before, after = (set(record.result(name)["msg"]) for name in ("Look before", "Look after"))
    # The process that failed may still be listed until the supervisor has waited for it.
    assert after - before, (before, after)
