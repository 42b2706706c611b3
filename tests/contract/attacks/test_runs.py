"""Attacks by a command in a run, as the user of the image: other tenants, and the operator."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from textwrap import indent

import pytest

from tests.support.image_runs import ImageRuns, image_runs
from tests.support.image_user import HOME, WORK_DIR
from tests.support.processes import new_nap, sleepers
from tests.support.waiting import eventually

_EVIL_PLUGIN = """
import os
open(f"/tmp/obeyed-{os.getpid()}", "w").write(open("/proc/self/cmdline").read())
"""
"""Code that leaves a file, in whatever process it is executed."""
_LEFT = f"""
import os, pathlib, sys, time

evil = {_EVIL_PLUGIN!r}
kinds = ("action", "callback", "filter", "vars", "lookup")
settings = "[defaults]\\n" + "".join(f"{{kind}}_plugins = /tmp/evil\\n" for kind in kinds)
settings += "callbacks_enabled = debug\\nlibrary = /tmp/evil\\n"
files = {{
    "ansible.cfg": settings,
    ".ansible.cfg": settings,
    "sitecustomize.py": evil,
    "usercustomize.py": evil,
    "json.py": evil,
    ".ansible/plugins/filter/core.py": evil,
    ".ansible/plugins/action/debug.py": evil,
    ".ansible/roles/victim/tasks/main.yml": "- fail:\\n",
    f".local/lib/python3.{{sys.version_info[1]}}/site-packages/evil.pth": (
        "import sys; exec(open('/tmp/evil/debug.py').read())"
    ),
    "env/envvars": '{{"ANSIBLE_CONFIG": "/tmp/ansible.cfg", "PYTHONPATH": "/tmp/evil"}}',
    "roles/victim/tasks/main.yml": "- fail:\\n",
    "roles/victim/library/debug.py": evil,
    "watches.yaml": "[]",
}}


def leave(folder):
    for name, text in files.items():
        try:
            path = pathlib.Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            path.write_text(text)
        except OSError:
            pass


def leave_everywhere(folders):
    for folder in folders:
        leave(folder)
        try:
            inner = [entry.path for entry in os.scandir(folder) if entry.is_dir()]
        except OSError:
            inner = []
        for each in inner:
            leave(each)


os.makedirs("/tmp/evil", exist_ok=True)
pathlib.Path("/tmp/evil/debug.py").write_text(evil)
until = time.monotonic() + 120
while time.monotonic() < until:
    leave_everywhere(["/tmp", "/var/tmp", {str(HOME)!r}, {str(WORK_DIR)!r}, "/", "/dev/shm"])
    time.sleep(0.005)
"""


@pytest.fixture(scope="module")
def runs() -> Iterator[ImageRuns]:
    """Start an operator in the surroundings of the image."""
    with image_runs() as started:
        yield started


def _script(program: str, command: str = "python3 $TMPDIR/attack.py") -> str:
    """Return tasks that run a Python program."""
    copy = '- copy:\n    dest: \'{{ lookup("env", "TMPDIR") }}/attack.py\'\n    content: |\n'
    return f"{copy}{indent(program, '      ')}- shell: {command}\n"


def test_a_run_changes_nothing_that_the_operator_or_later_runs_load(runs: ImageRuns) -> None:
    """No trusted process and no later run obeys settings, plugins or code that a run leaves."""
    assert runs.run("victim", "- debug:\n")["successful"]
    in_background = "setsid python3 $TMPDIR/attack.py >/dev/null 2>&1 </dev/null &"
    attack = runs.run("attacker", _script(_LEFT, in_background))
    assert attack["successful"], attack
    for _ in range(2):
        runs.do("unload")
        tasks = "- debug:\n- command: python3 -c 1\n- shell: cat /tmp/obeyed-* || true\n"
        later = runs.run("victim", tasks)
        assert (later["successful"], later["output"]) == (True, ""), later
    assert runs.run("victim", "- command: test -e /tmp/evil/debug.py\n")["successful"]


def test_a_run_leaves_nothing_in_its_own_directories(runs: ImageRuns) -> None:
    """Neither settings of ansible-runner nor variables, plugins or files of its home directory."""
    paths = (
        *("env/envvars", "env/settings", "env/passwords", "project/ansible.cfg"),
        *("project/group_vars/all.yml", "project/host_vars/localhost.yml"),
        *("inventory/group_vars/all.yml", "project/library/debug.py"),
    )
    own = WORK_DIR / "example.com/v1/Foo/default/attacker"
    made = " ".join(f"{own}/{path}" for path in paths)
    tasks = f"""
- shell: |
    for path in {made} ~/.ansible.cfg ~/.ansible/plugins/filter/x.py; do
      mkdir -p $(dirname $path); echo 'left: behind' > $path
    done
"""
    assert runs.run("attacker", tasks)["successful"]
    found = runs.run(
        "attacker",
        f"- shell: ls {made} ~/.ansible.cfg ~/.ansible/plugins || true\n- debug: var=left\n",
    )
    assert found["successful"], found
    assert found["output"] == ""


def test_a_play_has_a_key_of_its_own(runs: ImageRuns) -> None:
    """What authenticates processes of a play to each other is not that of another play."""
    plugin = """
import multiprocessing
class FilterModule:
    def filters(self):
        return {"key_of_play": lambda _: multiprocessing.current_process().authkey.hex()}
"""
    tasks = "- command: echo {{ '' | key_of_play }}\n"
    files = {"filter_plugins/key.py": plugin}
    keys = [runs.run(name, tasks, **files)["output"] for name in ("victim", "attacker", "victim")]
    assert all(re.fullmatch("[0-9a-f]{64}", key) for key in keys)
    assert len({*keys}) == len(keys)


def test_a_run_reads_no_memory_of_its_relatives(runs: ImageRuns) -> None:
    """Not that of its supervisor, of the fork server and of the operator."""
    program = """
import os
pid, chain = os.getpid(), []
while pid > 1:
    pid = int(open(f'/proc/{pid}/stat').read().rsplit(')', 1)[1].split()[1])
    readable = []
    for name in ('mem', 'environ', 'fd/0'):
        try:
            open(f'/proc/{pid}/{name}', 'rb').close()
            readable.append(name)
        except OSError:
            pass
    chain.append((pid, readable))
print(chain)
"""
    answer = runs.run("attacker", _script(program))
    chain = ast.literal_eval(answer["output"])
    operator = [pid for pid, _ in chain].index(answer["pid"])
    fork_server, *above = chain[operator - 1 :]
    assert [readable for _, readable in (fork_server, *above)] == [[]] * (1 + len(above)), chain


def test_a_run_finds_no_other_run(runs: ImageRuns) -> None:
    """Names of other tenants and directories of their runs can neither be listed nor guessed."""
    assert runs.run("victim", "- debug:\n")["successful"]
    tasks = f"""
- shell: |
    find {WORK_DIR} 2>/dev/null | grep -v attacker | grep -v $TMPDIR
    ls -a {WORK_DIR} {WORK_DIR}/example.com/v1/Foo/default 2>/dev/null
    cat {WORK_DIR}/example.com/v1/Foo/default/victim/env/extravars 2>/dev/null
    true
"""
    answer = runs.run("attacker", tasks)
    found = {*answer["output"].split()} - {str(WORK_DIR)}
    assert found <= {f"{WORK_DIR}/example.com"}, found


def test_a_run_takes_no_permissions_from_others(runs: ImageRuns) -> None:
    """Modes of directories that all runs use are restored before the next run."""
    tasks = f"""
- shell: |
    own=$(dirname $TMPDIR)
    for path in {WORK_DIR}/example.com/v1/Foo/default/victim {WORK_DIR}/example.com/v1/Foo/default \
        {WORK_DIR}/example.com/v1/Foo {WORK_DIR}/example.com/v1 {WORK_DIR}/example.com \
        {WORK_DIR}/shared {WORK_DIR} {HOME} $own; do
      chmod 0 $path
    done
    true
"""
    for _ in range(2):
        runs.run("attacker", tasks)
        assert runs.do("check")["fault"] is None
        assert runs.run("victim", "- shell: cat ~/roles/victim/tasks/main.yml\n")["successful"]


def test_a_run_removes_no_directory_of_another(runs: ImageRuns) -> None:
    """Names of artifacts are those of runs of the same resource only."""
    nap = new_nap()
    left = runs.run("victim", f"- shell: setsid sleep {nap} & echo $TMPDIR\n", identifier="abcdef")
    tasks = f"""
- shell: |
    cd {WORK_DIR}/example.com/v1/Foo/default/attacker/artifacts
    mkdir -p abcdef 1 2 3 4 5; touch -d 2000-01-01 abcdef
"""
    assert runs.run("attacker", tasks)["successful"]
    kept = runs.run("victim", f"- command: test -d {left['output']}\n")
    assert kept["successful"], kept


def test_a_run_does_not_forge_the_discovery_of_others(runs: ImageRuns) -> None:
    """The cache of what the API server serves is written before anything of a run is loaded."""
    forged = '{"resources": {"api": {"": {"v1": {"resources": {"secrets": 1}}}}}}'
    tasks = f"""
- shell: |
    for name in $(seq 8); do echo '{forged}' > $TMPDIR/k8srcp-$name.json; done
"""
    assert runs.run("attacker", tasks)["successful"]
    found = runs.run("victim", "- shell: cat $TMPDIR/k8srcp-* 2>/dev/null || true\n")
    assert found["output"] == ""


def test_a_file_of_a_run_does_not_use_up_the_memory_of_the_operator(runs: ImageRuns) -> None:
    """A sparse file in place of the output is read in part."""
    before = runs.run("victim", "- debug:\n")["memory"]
    tasks = f"""
- shell: |
    for file in {WORK_DIR}/example.com/v1/Foo/default/attacker/artifacts/*/stdout; do
      rm $file; truncate -s 3G $file
    done
"""
    after = runs.run("attacker", tasks)["memory"]
    assert after - before < 200 * 1024**2


def test_nothing_of_a_run_resists_its_removal(runs: ImageRuns) -> None:
    """Neither depth nor modes of directories."""
    program = """
import os
for top in (os.environ['TMPDIR'], os.environ['OWN'] + '/env', os.environ['OWN'] + '/project'):
    os.chdir(top)
    for _ in range(600):
        os.mkdir('deep')
        os.chdir('deep')
    os.chdir(top)
    os.chmod('deep/deep', 0)
    os.chmod('deep', 0)
print(os.environ['TMPDIR'])
"""
    own = WORK_DIR / "example.com/v1/Foo/default/attacker"
    left = runs.run("attacker", _script(program, f"OWN={own} python3 $TMPDIR/attack.py"))
    assert left["successful"], left
    again = runs.run("attacker", f"- shell: ls -d {own}/env/deep {own}/project/deep || true\n")
    assert (again["successful"], again["output"]) == (True, "")
    gone = runs.run("attacker", f"- command: test -e {left['output']}\n")
    assert not gone["successful"]


def test_what_a_run_leaves_ends_with_the_operator() -> None:
    """A daemon ends with it, also if Ansible was unloaded meanwhile."""
    nap, other = new_nap(), new_nap()
    with image_runs() as runs:
        for number in (nap, other):
            daemon = f"- shell: setsid sleep {number} >/dev/null 2>&1 </dev/null &\n"
            assert runs.run("a", daemon)["successful"]
            runs.do("unload")
        assert len(sleepers(nap, other)) == 2
    eventually(lambda: not sleepers(nap, other))
