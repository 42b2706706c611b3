"""No run has access to state of another one: changes of a run remain in its own process.

Each case runs twice through the same launchers. Both runs must find the state unchanged, and
so find the same as each other.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from operator_runner.core.settings import AnsibleSettings
from tests.contract.ansible.launchers.launching import NAMES, Both, Launchers
from tests.contract.ansible.launchers.projects import Project

MEDDLER = """
import ansible.plugins.filter.core as core
import ansible.template
import atexit, builtins, json, os, resource, signal, socket, sys, types
import yaml
from ansible import constants
from ansible.plugins.loader import filter_loader, module_loader


class FilterModule:
    def filters(self):
        return {"meddle": meddle, "witness": witness}


def witness(_):
    mask = os.umask(0)
    os.umask(mask)
    return {
        "environment": sorted(set(os.environ) & {"LEFT", "ANSIBLE_LEFT"}),
        "home": os.environ.get("HOME"),
        "cwd": os.path.basename(os.getcwd()),
        "umask": oct(mask),
        "modules": "left_behind" in sys.modules,
        "builtins": hasattr(builtins, "LEFT"),
        "path": [entry for entry in sys.path if "left" in entry],
        "attributes": [hasattr(thing, "LEFT") for thing in (json, yaml, core, constants)],
        "loads": yaml.safe_load("a: 1"),
        "signals": str(signal.getsignal(signal.SIGUSR1)),
        # A warm play may open more files than a cold one, so the limit itself differs.
        "limited": resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 256,
        "timeout": socket.getdefaulttimeout(),
        "nice": os.nice(0),
        "found": str(module_loader.find_plugin("left_module"))[-28:],
    }


def meddle(_):
    os.environ["LEFT"] = os.environ["ANSIBLE_LEFT"] = "behind"
    os.environ["HOME"] = "/left"
    os.chdir("/")
    os.umask(0)
    sys.modules["left_behind"] = types.ModuleType("left_behind")
    builtins.LEFT = True
    sys.path.insert(0, "/left")
    for thing in (json, yaml, core, constants):
        thing.LEFT = True
    yaml.safe_load = lambda _: "meddled"
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    socket.setdefaulttimeout(1)
    os.nice(1)
    atexit.register(lambda: open("/dev/null").read())
    return "meddled"


def _meddle_while_loading():
    # A filter plugin is loaded in the process of the play, not of a task.
    os.environ["LOADED"] = str(int(os.environ.get("LOADED", "0")) + 1)
    core.LOADED = getattr(core, "LOADED", 0) + 1


_meddle_while_loading()
"""

TASKS = """
- name: Witness
  debug: {msg: '{{ 1 | witness }}'}
- name: Meddle
  debug: {msg: '{{ 1 | meddle }}'}
- name: Loaded
  debug: {msg: "{{ lookup('env', 'LOADED') }}"}
- name: Own module
  left_module: {out: '{{ out }}'}
- name: Fact
  set_fact: {left: behind, cacheable: true}
  when: left is not defined
- name: ResourceState
  debug: {msg: "{{ lookup('env', 'LEFT', default='nothing') }}"}
"""
MODULE = """#!/usr/bin/python
import os, sys, tempfile
from ansible.module_utils.basic import AnsibleModule
module = AnsibleModule({"out": {}})
seen = {"left": os.environ.get("LEFT"), "module": "left_behind" in sys.modules}
os.environ["LEFT"] = "by a module"
import ansible.module_utils.basic as basic
basic.LEFT = getattr(basic, "LEFT", 0) + 1
module.exit_json(seen=seen, count=basic.LEFT)
"""
FILES = {
    "roles/tried/filter_plugins/meddler.py": MEDDLER,
    "roles/tried/library/left_module.py": MODULE,
}


def test_a_meddling_run_leaves_nothing_behind(both: Both) -> None:
    """Environment, directory, modules, patches, limits and facts of a run end with it."""
    first = both(Project(TASKS, FILES))
    second = both(Project(TASKS, FILES))
    for record in (first, second):
        assert record.outcome.successful, record.outcome.failures
        witnessed = record.result("Witness")["msg"]
        assert witnessed["environment"] == []
        assert witnessed["modules"] is False
        assert witnessed["limited"] is False
        assert witnessed["attributes"] == [False] * 4
        assert record.result("Own module")["count"] == 1
        assert record.kinds(task="Fact")[-1] == "runner_on_ok"
    assert first.result("Witness") == second.result("Witness")
    assert first.result("Loaded") == second.result("Loaded")


def test_tasks_do_not_see_each_other(both: Both) -> None:
    """State that a plugin leaves in the process of a task is not in the next task."""
    counting = """
import builtins, os, sys
CALLS = 0


class FilterModule:
    def filters(self):
        return {"count": count}


def count(_):
    global CALLS
    CALLS += 1
    builtins.CALLS = getattr(builtins, "CALLS", 0) + 1
    os.environ["CALLS"] = str(int(os.environ.get("CALLS", 0)) + 1)
    print("printed")
    print("complained", file=sys.stderr)
    return f"{CALLS} {builtins.CALLS} {os.environ['CALLS']}"
"""
    root = "collections/ansible_collections/acme/counting/plugins"
    plays = """
- hosts: localhost
  gather_facts: false
  tasks:
    - {name: First, debug: {msg: "{{ 1 | acme.counting.count }}"}}
    - {name: Second, debug: {msg: "{{ 1 | acme.counting.count }}"}}
    - {name: Module, command: "echo {{ 1 | acme.counting.count }}"}
    - name: Pipe
      debug:
        msg: "{{ lookup('pipe', 'echo complained >&2; tty; readlink /proc/self/fd/0; wc -c') }}"
      ignore_errors: true
    - name: Session of the lookup
      debug: {msg: "{{ lookup('pipe', 'test $(ps -o sid= $PPID) -eq $PPID; echo $?') }}"}
    - name: Session
      command: sh -c 'readlink /proc/$PPID/fd/0 /proc/$PPID/fd/2 | sed s/[0-9]//g'
"""
    record = both(Project(files={"site.yml": plays, f"{root}/filter/count.py": counting}))
    assert record.result("First")["msg"] == "1 1 1"
    assert record.result("Second")["msg"] == "1 1 1"


def test_runs_leave_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Temporary files of Ansible and of modules are deleted after a run, failed or not."""
    temporary, home = tmp_path / "temporary", tmp_path / "home"
    for folder in (temporary, home):
        folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setenv("ANSIBLE_HOME", str(home))
    monkeypatch.setenv("ANSIBLE_REMOTE_TEMP", str(home / "tmp"))
    module = """#!/usr/bin/python
from ansible.module_utils.basic import AnsibleModule
import os, tempfile
module = AnsibleModule({"crash": {"type": "bool"}})
handle, path = tempfile.mkstemp(dir=module.tmpdir)
os.write(handle, b"left")
if module.params["crash"]:
    raise ValueError("crashed")
module.exit_json(private=oct(os.stat(module.tmpdir).st_mode))
"""
    tasks = """
- {name: Good, leaving: }
- {name: Copied, copy: {content: x, dest: '{{ out }}/x'}}
- {name: Template, template: {src: x.j2, dest: '{{ out }}/y'}}
- {name: Script, script: x.sh}
- {name: Crash, leaving: {crash: true}}
"""
    files = {
        "roles/tried/library/leaving.py": module,
        "roles/tried/templates/x.j2": "x",
        "roles/tried/files/x.sh": "#!/bin/sh\necho x\n",
    }
    with Launchers(AnsibleSettings(skip_facts=True)) as launchers:
        for name in NAMES:
            record = launchers.run(name, Project(tasks, files), tmp_path / "case")
            assert [failure.task for failure in record.outcome.failures] == ["Crash"]
            assert [path for path in home.rglob("*") if path.is_file()] == [], name
            assert list((home / "tmp").iterdir()) == [], name
            assert list(temporary.iterdir()) == [], name


def test_a_run_has_no_data_of_other_runs(launchers: Launchers, tmp_path: Path) -> None:
    """The environment of a run contains no directory, token or variable of an earlier run."""
    tasks = """
- name: Environment
  shell: env; cat /proc/self/environ /proc/self/cmdline /proc/$PPID/cmdline | tr '\\0' '\\n'
- name: Controller
  debug: {msg: "{{ lookup('pipe', 'env; cat /proc/self/environ | tr \\"\\\\0\\" \\"\\\\n\\"') }}"}
- name: Descriptors
  # A descriptor that closes while it is listed is an error of `ls`.
  shell: ls -l /proc/$PPID/fd /proc/self/fd || true
- name: Memory
  finder: {needle: '{{ needle }}'}
"""
    finder = """#!/usr/bin/python
import re
from ansible.module_utils.basic import AnsibleModule
module = AnsibleModule({"needle": {}})
# A pattern that has something between the letters, so that it does not find itself.
needle = re.compile(module.params["needle"].encode())
found = []
with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb") as memory:
    for line in maps:
        area, rights = line.split()[:2]
        start, end = (int(part, 16) for part in area.split("-"))
        if rights.startswith("r") and "[v" not in line:
            memory.seek(start)
            try:
                content = memory.read(end - start)
            except OSError:
                continue
            if needle.search(content):
                found.append(line.split()[-1])
module.exit_json(found=found)
"""
    files = {"roles/tried/library/finder.py": finder}
    for number, name in enumerate(["warm", "warm", "cold"]):
        first, second = f"first-{number}-secret", f"second-{number}-secret"
        needle = "".join(f"[{letter}]" for letter in first)
        for run, word in enumerate((first, second)):
            variables = {"needle": needle, "own": word}
            project = Project(tasks, files, variables=variables, kubeconfig=word, resource=word)
            # The directory of the project is not a secret of a run.
            record = launchers.run(name, project, tmp_path / f"project{number}{run}")
        assert record.outcome.successful, record.outcome.failures
        assert record.result("Descriptors")["stdout"].count("/fd:\n") == 2
        assert first not in f"{record.events} {record.artifacts}"
        assert record.result("Memory")["found"] == []


def test_warm_modules_run_in_forks(launchers: Launchers, tmp_path: Path) -> None:
    """Modules run in forks that have Ansible loaded: without this nothing here is compared."""
    module = """#!/usr/bin/python
import sys
from ansible.module_utils.basic import AnsibleModule
AnsibleModule({}).exit_json(loaded="ansible.executor.task_queue_manager" in sys.modules)
"""
    project = Project("- {name: Own, own: }\n", {"roles/tried/library/own.py": module})
    for name in NAMES:
        record = launchers.run(name, project, tmp_path / name)
        assert record.result("Own")["loaded"] is (name == "warm")
