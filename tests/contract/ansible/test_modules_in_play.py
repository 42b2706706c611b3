"""Modules that run in the process of the play: results, processes, what is left."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from operator_runner.ansible.executor import open_launcher
from operator_runner.core.settings import AnsibleSettings
from tests.contract.ansible.launchers.projects import Project, library
from tests.contract.ansible.launchers.records import Record, differences

_SETTINGS = AnsibleSettings(skip_facts=True)
_IN_PLAY = "modules-in-play"
_OBJECT = "{apiVersion: v1, kind: ConfigMap, metadata: {name: shared, namespace: default}}"
_CHILDREN = "ps -o pid= --ppid $(ps -o ppid= -p $(ps -o ppid= -p $$))"
"""Prints the children of the supervisor. The shell is a child of the play, as its pipe lookup."""
_STATE = (
    "cd /proc/$PPID && grep -E '^(Umask|Threads|SigIgn|SigCgt)' status && readlink cwd"
    " && cat limits && grep flags fdinfo/0"
    " && ls -l fd | grep -vE 'socket:|pipe:' | sed 's/.* -> //' | sort"
)
"""Prints what the play has, except connections, and pipes, which it has for this command."""
_COMMANDS = {
    "children": _CHILDREN,
    "state": _STATE,
    "sockets": "readlink /proc/$PPID/fd/* | grep socket: | tr -dc '0-9\\n'",
}


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
def inline_kubeconfig(control_plane: Path) -> str:
    """Return the kubeconfig of the control plane in JSON, with certificates within it."""
    return json.dumps(yaml.safe_load(control_plane.read_text()))


@pytest.fixture
def kubeconfig(inline_kubeconfig: str, tmp_path: Path) -> str:
    """Return a kubeconfig that names its certificates by file, as those of runs do.

    Clients with certificates within the kubeconfig are not kept.
    """
    config = json.loads(inline_kubeconfig)
    for entry in (config["clusters"][0]["cluster"], config["users"][0]["user"]):
        for field in [field for field in entry if field.endswith("-data")]:
            file = tmp_path / field
            file.write_bytes(base64.b64decode(entry.pop(field)))
            entry[field.removesuffix("-data")] = str(file)
    return json.dumps(config)


async def _run(kubeconfig: str, folder: Path, tasks: str, *disabled: str) -> Record:
    """Run tasks by a new fork server, in a directory that each run finds empty."""
    project = Project(tasks, _FILES, variables=_COMMANDS, kubeconfig=kubeconfig)
    return await _launch(project, folder, *disabled)


async def _launch(project: Project, folder: Path, *disabled: str) -> Record:
    async with open_launcher("warm", replace(_SETTINGS, disabled_patches=disabled)) as launcher:
        record = await project.run(launcher, folder / "run" / "site")
    (folder / "run").rename(folder / os.urandom(8).hex())
    return record


async def test_a_sequence_of_modules_gives_the_same_in_the_play(
    kubeconfig: str, tmp_path: Path
) -> None:
    """After failures, in loops, and with other environments, users and modules between them."""
    separate = await _run(kubeconfig, tmp_path, _SEQUENCE, _IN_PLAY)
    assert separate.tasks()[-1] == "Delete"
    in_play = await _run(kubeconfig, tmp_path, _SEQUENCE)
    found = differences(("separate", "in the play"), separate, in_play)
    assert not found, found


async def test_modules_of_tasks_in_the_play_have_no_process(
    kubeconfig: str, tmp_path: Path
) -> None:
    """Also those of a loop, and after one that has failed."""
    tasks = (
        _READ.format(name="Read", namespace="default")
        + _look("After one")
        + _READ.format(name="Read all", namespace="'{{ item }}'")
        + "  loop: [default, kube-public, kube-system]\n"
        + _look("After a loop")
        + "- name: Wrong\n  kubernetes.core.k8s: {state: nonsense}\n  ignore_errors: true\n"
        + _READ.format(name="Read again", namespace="default")
        + _look("At the end")
    )
    record = await _run(kubeconfig, tmp_path, tasks)
    assert record.outcome.successful, record.outcome.failures
    (play,) = record.result("After one")["msg"]
    assert record.result("After a loop")["msg"] == [play]
    assert record.result("At the end")["msg"] == [play]


async def test_modules_of_a_playbook_run_in_its_directory(
    inline_kubeconfig: str, tmp_path: Path
) -> None:
    """A relative path of a certificate leads there. They have no process either."""
    config = json.loads(inline_kubeconfig)
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    files: dict[str, str | bytes] = {
        "ca.crt": base64.b64decode(cluster["certificate-authority-data"]),
        "client.crt": base64.b64decode(user["client-certificate-data"]),
        "client.key": base64.b64decode(user["client-key-data"]),
        "site.yml": f"""
- hosts: localhost
  gather_facts: false
  tasks:
    - name: Before
      debug: {{msg: '{{{{ lookup("pipe", state) }}}}'}}
    - name: Read
      kubernetes.core.k8s_info:
        kind: Namespace
        name: default
        host: {cluster["server"]}
        ca_cert: ca.crt
        client_cert: client.crt
        client_key: client.key
    - name: Processes
      debug: {{msg: '{{{{ lookup("pipe", children).split() }}}}'}}
    - name: After
      debug: {{msg: '{{{{ lookup("pipe", state) }}}}'}}
""",
    }
    record = await _launch(Project(files=files, variables=_COMMANDS), tmp_path)
    assert record.outcome.successful, record.outcome.failures
    assert record.result("Read")["resources"][0]["metadata"]["name"] == "default"
    assert len(record.result("Processes")["msg"]) == 1
    assert record.result("After")["msg"] == record.result("Before")["msg"]


async def test_modules_in_the_play_leave_it_as_it_was(
    kubeconfig: str, inline_kubeconfig: str, tmp_path: Path
) -> None:
    """Its threads, signals, umask, directory, limits, environment, open and temporary files.

    The cache of discovery is a temporary file that later runs find.
    """
    look = """
- name: {name}
  debug:
    msg:
      process: '{{{{ lookup("pipe", state) }}}}'
      environment: '{{{{ query("pipe", "env | sort") }}}}'
      temporary: '{{{{ query("pipe", "find $TMPDIR -type f ! -name k8srcp-*.json") }}}}'
"""
    inline = f"""
- name: Certificates in temporary files
  kubernetes.core.k8s_info: {{kind: Namespace, name: default, kubeconfig: {inline_kubeconfig}}}
"""
    # The first lookups import what they need.
    tasks = "".join(
        (look.format(name="Warm up"), look.format(name="Before"), _SEQUENCE, inline)
    ) + look.format(name="After")
    record = await _run(kubeconfig, tmp_path, tasks)
    assert record.outcome.successful, record.outcome.failures
    assert record.result("After")["msg"] == record.result("Before")["msg"]


async def test_workers_make_connections_of_their_own(kubeconfig: str, tmp_path: Path) -> None:
    """A lookup in a worker does not use the connection of the play, which goes on with it."""
    sockets = """
- name: {name}
  debug: {{msg: '{{{{ lookup("pipe", sockets).split() }}}}'}}
"""
    worker = """
- name: Worker
  debug:
    msg:
      found: '{{ lookup("kubernetes.core.k8s", kind="Namespace", resource_name="default") }}'
      sockets: '{{ lookup("pipe", sockets).split() }}'
  delegate_to: localhost
"""
    tasks = (
        sockets.format(name="At first")
        + _READ.format(name="Read", namespace="default")
        + sockets.format(name="After a module")
        + worker
        + _READ.format(name="Read again", namespace="kube-public")
        + sockets.format(name="At the end")
    )
    record = await _run(kubeconfig, tmp_path, tasks)
    assert record.outcome.successful, record.outcome.failures
    at_first, after, at_the_end = (
        set(record.result(name)["msg"]) for name in ("At first", "After a module", "At the end")
    )
    (connection,) = after - at_first
    in_worker = record.result("Worker")["msg"]
    assert in_worker["found"]["metadata"]["name"] == "default"
    assert connection not in in_worker["sockets"]
    assert connection in at_the_end


async def test_a_module_that_a_timeout_may_interrupt_has_a_process(
    kubeconfig: str, tmp_path: Path
) -> None:
    """Nothing interrupts the play where it puts back what belongs to the module."""
    tasks = (
        """
- name: Never there
  kubernetes.core.k8s_info:
    {kind: ConfigMap, name: never, namespace: default, wait: true, wait_timeout: 120}
  timeout: 1
  ignore_errors: true
"""
        + _READ.format(name="After", namespace="default")
        + _look("Look")
    )
    record = await _run(kubeconfig, tmp_path, tasks)
    assert record.outcome.successful, record.outcome.failures
    assert "Timed out after 1 second" in record.result("Never there")["msg"]
    assert record.result("After")["resources"][0]["metadata"]["name"] == "default"
    # The play, and the module that waits on.
    assert len(record.result("Look")["msg"]) == 2


def _write_kubeconfig_with_a_program(config: Any, folder: Path) -> None:
    """Write the file `exec`, with a program that reads its input and prints the credentials."""
    user = config["users"][0].pop("user")
    api_version = "client.authentication.k8s.io/v1"
    status = {
        "clientCertificateData": Path(user["client-certificate"]).read_text(),
        "clientKeyData": Path(user["client-key"]).read_text(),
    }
    credential = {"apiVersion": api_version, "kind": "ExecCredential", "status": status}
    (folder / "credential.json").write_text(json.dumps(credential))
    program = f"cat > /dev/null && cat {folder}/credential.json"
    command = {"apiVersion": api_version, "command": "sh", "args": ["-c", program]}
    config["users"][0]["user"] = {"exec": {**command, "interactiveMode": "Never"}}
    (folder / "exec").write_text(json.dumps(config))


@pytest.mark.parametrize("disabled", [(), (_IN_PLAY,)])
async def test_a_program_for_credentials_has_an_empty_input(
    kubeconfig: str, tmp_path: Path, disabled: tuple[str, ...]
) -> None:
    """A program that reads its input finds the end of it, in the play as in a process."""
    _write_kubeconfig_with_a_program(json.loads(kubeconfig), tmp_path)
    tasks = f"""
- name: Read
  kubernetes.core.k8s_info: {{kind: Namespace, name: default, kubeconfig: {tmp_path}/exec}}
"""
    async with asyncio.timeout(120):
        record = await _run(kubeconfig, tmp_path, tasks, *disabled)
    assert record.outcome.successful, record.outcome.failures
    assert record.result("Read")["resources"][0]["metadata"]["name"] == "default"
