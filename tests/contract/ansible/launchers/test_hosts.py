"""Several hosts: inventories, group_vars, delegation, run_once, serial, strategies."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.contract.ansible.launchers.launching import Both
from tests.contract.ansible.launchers.projects import Project
from tests.contract.ansible.launchers.views import by_host

INVENTORY = {
    "inventory/hosts.yml": """
all:
  vars: {ansible_connection: local, ansible_python_interpreter: '{{ ansible_playbook_python }}'}
  children:
    web: {hosts: {web1: {number: 81}, web2: {}}}
    db: {hosts: {db1: {}}}
    everything: {children: {web: {}, db: {}}}
""",
    "inventory/more.ini": """
[cache]
cache1 number=11211 words='["a", "b"]'
[cache:vars]
ini=yes
""",
    "inventory/group_vars/all.yml": "who: all\nnumber: 80\n",
    "inventory/group_vars/web/one.yml": "who: web\n",
    "inventory/group_vars/web/two.yml": "kind: '{{ who }} of {{ inventory_hostname }}'\n",
    "inventory/host_vars/db1.yml": "who: db1\nnumber: 5432\n",
    "group_vars/cache.yml": "who: beside the playbook\n",
}


def _project(plays: str, args: str = "--forks 2") -> Project:
    return Project(files={**INVENTORY, "site.yml": plays}, inventory="inventory", args=args)


def test_inventory_variables_follow_ansibles_precedence(both: Both) -> None:
    """Variables of hosts and groups, from YAML, INI and directories, in Ansible's order."""
    record = both(
        _project("""
- hosts: all
  gather_facts: false
  tasks:
    - name: Say
      debug: {msg: '{{ who }}:{{ number }}'}
    - name: Groups
      debug: {msg: '{{ group_names }} {{ groups.everything }} {{ kind | default(ini) }}'}
    - name: Command
      command: echo {{ inventory_hostname }}
    - name: Others
      debug: {msg: '{{ hostvars[item].number }}'}
      loop: '{{ groups.web }}'
      when: inventory_hostname == 'db1'
"""),
        view=by_host,
    )
    assert {host: result["msg"] for host, result in record.ends("Say")} == {
        "web1": "web:81",
        "web2": "web:80",
        "db1": "db1:5432",
        "cache1": "beside the playbook:11211",
    }
    assert [result.get("stdout") for host, result in record.ends("Command")] == [
        host for host, _ in record.ends("Command")
    ]


@pytest.mark.slow
def test_delegated_tasks_run_on_their_host(both: Both) -> None:
    """delegate_to, delegate_facts, run_once, local_action and hosts that a play adds."""
    record = both(
        _project("""
- hosts: web
  gather_facts: false
  tasks:
    - name: Delegated
      command: echo {{ inventory_hostname }} {{ number }}
      delegate_to: db1
    - name: Facts
      set_fact: {given: '{{ inventory_hostname }}'}
      delegate_to: db1
      delegate_facts: true
      when: inventory_hostname == 'web2'
    - name: Once
      command: echo once
      run_once: true
      register: once
    - name: Shared
      debug: {msg: '{{ once.stdout }} {{ hostvars.db1.given }}'}
    - name: Local
      local_action: {module: command, cmd: echo local}
    - name: Group
      group_by: {key: 'number_{{ number }}'}
    - name: Add
      add_host: {name: new1, groups: [new], ansible_connection: local, number: 1}
    - name: Looped
      command: echo {{ item }}
      delegate_to: '{{ item }}'
      loop: '{{ groups.db }}'
- hosts: new:number_81
  gather_facts: false
  tasks:
    - name: Found
      debug: {msg: '{{ number }}'}
"""),
        view=by_host,
    )
    assert record.outcome.failures == ()
    assert [result["msg"] for _, result in record.ends("Shared")] == ["once web2"] * 2
    assert sorted(host for host, _ in record.ends("Found")) == ["new1", "web1"]
    assert len(record.ends("Once")) == 1


@pytest.mark.slow
def test_failing_hosts_are_counted_in_the_recap(both: Both) -> None:
    """serial, max_fail_percentage, unreachable hosts, any_errors_fatal, and the recap of each."""
    record = both(
        _project("""
- hosts: web
  gather_facts: false
  serial: 1
  tasks:
    - name: Serial
      command: echo {{ ansible_play_batch }}
- hosts: everything
  gather_facts: false
  tasks:
    - name: Some
      command: "{{ 'false' if inventory_hostname == 'web2' else 'true' }}"
    - name: Left
      debug: {msg: '{{ ansible_play_hosts }}'}
    - name: Unreachable
      command: 'true'
      vars: {ansible_connection: ssh, ansible_host: 127.0.0.1, ansible_port: 1}
      when: inventory_hostname == 'db1'
    - name: Cleared
      meta: clear_host_errors
- hosts: web1
  gather_facts: false
  any_errors_fatal: true
  tasks:
    - name: Fatal
      command: 'false'
- hosts: cache
  gather_facts: false
  tasks:
    - name: Afterwards
      debug:
"""),
        view=by_host,
    )
    assert record.kinds(task="Serial").count("playbook_on_task_start") == 2
    assert sorted(host for host, _ in record.ends("Left")) == ["db1", "web1"]
    assert "runner_on_unreachable" in record.kinds(task="Unreachable")
    assert record.exit_status != 0


@pytest.mark.slow
def test_hosts_do_not_affect_each_other(both: Both) -> None:
    """Forks and strategies: each host runs the same tasks, independent of the others."""
    plays = """
- hosts: everything
  gather_facts: false
  strategy: free
  tasks:
    - name: Free
      command: echo {{ inventory_hostname }}
      register: said
    - name: Later
      debug: {msg: '{{ said.stdout }}'}
- hosts: everything
  gather_facts: false
  strategy: host_pinned
  tasks:
    - name: Pinned
      command: echo {{ inventory_hostname }}
- hosts: everything
  gather_facts: false
  tasks:
    - name: Linear
      command: echo {{ inventory_hostname }} {{ item }}
      loop: [1, 2]
      throttle: 2
"""
    project = _project(plays, args="--forks 3")
    record = both(project, view=by_host)
    assert {host: result["msg"] for host, result in record.ends("Later")} == {
        host: host for host in ("web1", "web2", "db1")
    }
    limited = both(replace(project, args="--forks 1 --limit web2"))
    assert {host for host, _ in limited.ends("Linear")} == {"web2"}
