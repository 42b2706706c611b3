"""Where and as whom a task runs: async, become, environment, interpreters, verbosity."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.contract.ansible.launchers.launching import Both
from tests.contract.ansible.launchers.projects import Project
from tests.contract.ansible.launchers.views import without_polls, without_transport

WHO = """#!/usr/bin/python
import os
import sys
from ansible.module_utils.basic import AnsibleModule
module = AnsibleModule({})
module.exit_json(uid=os.geteuid(), python=sys.executable, name=os.environ.get("NAME"))
"""
LIBRARY = {"roles/tried/library/who.py": WHO}


@pytest.mark.slow
def test_async_tasks_are_polled_and_time_out(both: Both, tmp_path: Path) -> None:
    """Tasks in the background: waited for, looked after later, failing, taking too long."""
    tasks = """
- name: Waited
  command: echo waited
  async: 30
  poll: 1
- name: Started
  shell: echo {{ item }}
  async: 30
  poll: 0
  loop: [a, b]
  register: jobs
- name: Done
  shell: until grep -q '"rc"' {{ item.results_file }}; do sleep 0.1; done
  loop: '{{ jobs.results }}'
  loop_control: {label: '{{ item.item }}'}
- name: Collected
  async_status: {jid: '{{ item.ansible_job_id }}'}
  loop: '{{ jobs.results }}'
  loop_control: {label: '{{ item.item }}'}
  register: collected
  until: collected.finished
  retries: 60
  delay: 1
- name: Said
  debug: {msg: '{{ collected.results | map(attribute="stdout") | join }}'}
- name: Failing
  who: {no_such: argument}
  async: 30
  poll: 1
  ignore_errors: true
- name: Slow
  command: sleep 60
  async: 1
  # Late enough that it has been ended: the order would change the output.
  poll: 8
  ignore_errors: true
- name: Unknown
  async_status: {jid: '12.34'}
  ignore_errors: true
"""
    # Else ansible-core looks below HOME on one side, below the user's home on the other.
    variables = {"ansible_async_dir": str(tmp_path / "jobs")}
    record = both(Project(tasks, LIBRARY, variables=variables), view=without_polls)
    assert record.outcome.successful
    assert record.result("Said")["msg"] == "ab"
    assert "no_such" in record.result("Failing")["msg"]
    assert "runner_on_async_ok" in record.kinds(task="Waited")
    assert "runner_on_async_failed" in record.kinds(task="Slow")


@pytest.mark.local_only("the temporary directory is that of the Pod")
def test_become_switches_the_user_of_one_task(both: Both) -> None:
    """A task of another user runs as that user, and the next one as ourselves again."""
    tasks = """
- name: Nobody
  command: id -un
  become: true
  become_user: nobody
  become_method: su
  vars: {ansible_become_flags: '-s /bin/sh', ansible_python_interpreter: /usr/bin/python3}
- name: Module
  who:
  become: true
  become_user: nobody
  become_method: su
  vars: {ansible_become_flags: '-s /bin/sh', ansible_python_interpreter: /usr/bin/python3}
- name: Self
  who:
- name: Root
  who:
  become: true
  become_method: su
- name: Nowhere
  who:
  become: true
  become_user: nosuchuser
  become_method: su
  ignore_errors: true
- name: Missing
  who:
  become: true
  become_method: nosuchmethod
  ignore_errors: true
"""
    record = both(Project(tasks, LIBRARY))
    assert record.result("Nobody")["stdout"] == "nobody"
    assert record.result("Module")["uid"] == 65534
    assert record.result("Self")["uid"] == 0
    assert record.result("Root")["uid"] == 0


@pytest.mark.local_only("the environment is that of the Pod")
def test_environment_reaches_modules_of_its_scope_only(both: Both) -> None:
    """The environment of play, block and task reaches modules and commands, and them alone."""
    plays = """
- hosts: localhost
  gather_facts: false
  environment: {NAME: play, SHARED: play}
  tasks:
    - name: Play
      shell: echo $NAME $SHARED
    - name: Module
      who:
      environment: {NAME: module}
    - environment: {NAME: block}
      block:
        - name: Block
          shell: echo $NAME $SHARED
        - name: Task
          shell: echo $NAME $SHARED $PATH_OF
          environment: {NAME: "task's \\"own\\" $HOME", PATH_OF: '{{ item }}'}
          loop: [ü, b]
    - name: Again
      who:
    - name: Kubeconfig
      shell: test "$KUBECONFIG" = "$K8S_AUTH_KUBECONFIG" && cat $KUBECONFIG
    - name: Controller
      debug: {msg: "{{ lookup('env', 'NAME') }}|{{ lookup('env', 'KUBECONFIG') | basename }}"}
    - name: Own
      shell: env | cut -d= -f1 | grep -E '^(ANSIBLE|RUNNER|K8S|KUBE|AWX|OPERATOR)' | sort
    - name: Settings
      shell: env | grep -E '^(ANSIBLE|RUNNER|K8S|KUBE|AWX|PATH|PYTHON|LC_|LANG|HOME|PWD)' | sort
    - name: Place
      shell: pwd; umask; ulimit -n
    - name: Standard input
      shell: wc -c; test -t 0 || test -t 1 || echo no terminal
"""
    project = Project(files={"site.yml": plays, "library/who.py": WHO})
    record = both(project)
    assert record.result("Play")["stdout"] == "play play"
    assert record.result("Module")["name"] == "module"
    assert record.result("Block")["stdout"] == "block play"
    assert record.result("Again")["name"] == "play"
    assert record.result("Controller")["msg"] == "|kubeconfig"
    assert record.result("Kubeconfig")["stdout"] == "the token"


def test_the_play_ends_after_its_workers(both: Both) -> None:
    """A worker that is slow to end when its task has ended outlives no run."""
    action = """
import multiprocessing.util
import signal
import time
from ansible.plugins.action import ActionBase
class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        multiprocessing.util.Finalize(None, time.sleep, args=(2,), exitpriority=0)
        return super().run(tmp, task_vars)
"""
    record = both(Project("- slow:", {"roles/tried/action_plugins/slow.py": action}))
    assert record.outcome.successful
    assert not record.outcome.incomplete


def test_a_pause_ends(both: Both) -> None:
    """It asks through its worker, and nobody answers."""
    plays = """
- hosts: localhost
  gather_facts: false
  tasks:
    - name: Wait
      pause: {seconds: 1}
"""
    record = both(Project(files={"site.yml": plays}))
    assert "rc" in record.result("Wait")
    assert record.outcome.successful


def test_the_configured_interpreter_runs_the_module(both: Both) -> None:
    """Another ansible_python_interpreter is the one that runs the module."""
    tasks = """
- name: Ours
  who:
- name: System
  who:
  vars: {ansible_python_interpreter: /usr/bin/python3}
- name: Wrapped
  who:
  vars: {ansible_python_interpreter: '{{ site }}/wrapper'}
- name: Missing
  who:
  vars: {ansible_python_interpreter: /nowhere/python}
  ignore_errors: true
- name: Discovered
  who:
  vars: {ansible_python_interpreter: auto_silent}
- name: Played
  who:
  vars: {ansible_python_interpreter: '{{ ansible_playbook_python }}'}
"""
    wrapper = f'#!/bin/sh\nNAME=wrapped exec {sys.executable} "$@"\n'
    record = both(Project(tasks, {**LIBRARY, "wrapper": wrapper}))
    assert record.result("Ours")["python"] == sys.executable
    assert record.result("Wrapped")["name"] == "wrapped"
    assert record.result("System")["python"] == "/usr/bin/python3"
    assert record.result("Missing")["rc"] == 127


@pytest.mark.parametrize("verbosity", [pytest.param(2, marks=pytest.mark.slow), 4])
def test_verbosity_prints_the_same_details(both: Both, verbosity: int) -> None:
    """-vv and -vvvv print more, and the same except for the start of modules; no header of -vv."""
    tasks = """
- name: Command
  command: echo x
- name: Module
  who:
- name: Skipped
  debug: {msg: x, verbosity: 7}
- name: Copied
  copy: {content: x, dest: '{{ out }}/x'}
- name: Read
  debug: {msg: '{{ lookup("file", item) }}'}
  loop: ['{{ out }}/x', '{{ out }}/x']
- name: Failing
  command: 'false'
"""
    record = both(Project(tasks, LIBRARY, verbosity=verbosity), view=without_transport)
    assert "config file = " not in record.stdout
    assert ("File lookup using" in record.stdout) == (verbosity == 4)
    assert [failure.task for failure in record.outcome.failures] == ["Failing"]
