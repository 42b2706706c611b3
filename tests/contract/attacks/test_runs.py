"""Attacks by a command in a run, as the user of the image: other tenants, and the operator."""

from __future__ import annotations

import ast
import errno
import json
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


_IN_BACKGROUND = "setsid python3 $TMPDIR/attack.py >/dev/null 2>&1 </dev/null & sleep 1"
_OWN_KUBECONFIG = f"""
import os, pathlib, time

evil = "#!/bin/sh\\ntouch {HOME}/roles/victim/tasks/planted /tmp/planted\\n"
pathlib.Path("/tmp/evil.sh").write_text(evil)
os.chmod("/tmp/evil.sh", 0o755)
program = "{{apiVersion: client.authentication.k8s.io/v1, command: /tmp/evil.sh}}"
config = '''
apiVersion: v1
kind: Config
current-context: c
contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
clusters: [{{name: c, cluster: {{server: "http://127.0.0.1:1"}}}}]
users: [{{name: u, user: {{exec: ''' + program + '''}}}}]
'''
path = "{WORK_DIR}/example.com/v1/Foo/default/attacker/env/kubeconfig"
until = time.monotonic() + 60
while time.monotonic() < until:
    try:
        if os.path.exists(path) and open(path).read() != config:
            open(path + ".x", "w").write(config)
            os.rename(path + ".x", path)
    except OSError:
        pass
"""
_WANTED = {"resources": {"apis": {"x.example.com": {"v1": {"resources": {"a": 1}}}}}}


def test_discovery_obeys_no_file_of_a_run(runs: ImageRuns) -> None:
    """A kubeconfig that an earlier run replaces could name a program of its own."""
    assert runs.run("victim", "- debug:\n")["successful"]
    assert runs.run("attacker", _script(_OWN_KUBECONFIG, _IN_BACKGROUND))["successful"]
    # The next run discovers what the caches of this one name.
    want = f"- shell: |\n    echo '{json.dumps(_WANTED)}' > $TMPDIR/k8srcp-1.json\n"
    assert runs.run("attacker", want)["successful"]
    assert runs.run("attacker", "- debug:\n")["successful"]
    look = f"- shell: ls /tmp/planted {HOME}/roles/victim/tasks/planted || true\n"
    assert runs.run("victim", look)["output"] == ""


_CALLS = f"""
import ctypes, errno, fcntl, os, struct

libc = ctypes.CDLL(None, use_errno=True)


def attempt(name, call):
    try:
        call()
        print(name, "done")
    except OSError as error:
        print(name, errno.errorcode[error.errno])


def watch():
    if libc.inotify_add_watch(libc.inotify_init(), b"{WORK_DIR}", 0xFFF) < 0:
        raise OSError(ctypes.get_errno(), "inotify")


def uring():
    if libc.syscall(425, 1, ctypes.create_string_buffer(200)) < 0:
        raise OSError(ctypes.get_errno(), "io_uring")


entries = (struct.pack("<HHI", tag, 0, 0xFFFFFFFF) for tag in (1, 4, 0x20))
acl = struct.pack("<I", 2) + b"".join(entries)
own = "{WORK_DIR}/example.com/v1/Foo/default"
attempt("watch", watch)
attempt("lease", lambda: fcntl.fcntl(os.open("{HOME}/roles/victim/tasks/main.yml", 0), 1024, 1))
attempt("acl", lambda: os.setxattr(own, "system.posix_acl_default", acl))
attempt("uring", uring)
"""


def test_a_run_watches_leases_and_closes_no_files_of_others(runs: ImageRuns) -> None:
    """By calls that Landlock has no rules for: names, delays of 45 s, and files without rights."""
    assert runs.run("victim", "- debug:\n")["successful"]
    output = runs.run("attacker", _script(_CALLS))["output"]
    assert output == "watch EPERM\nlease EPERM\nacl ENOTSUP\nuring EPERM"


_IN_TRANSIT = """
import array, os, resource, socket, time

hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
null, kept = os.open("/dev/null", 0), []
try:
    while True:
        kept += socket.socketpair()
        kept[-2].setblocking(False)
        try:
            while True:
                rights = array.array("i", [null] * 253)
                kept[-2].sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        except BlockingIOError:
            pass
except OSError as error:
    open("/tmp/in-transit", "w").write(str(error.errno))
while not os.path.exists("/tmp/in-transit-seen"):
    time.sleep(0.1)
"""


def test_descriptors_in_transit_do_not_stop_later_runs(runs: ImageRuns) -> None:
    """The kernel counts them by user, and each run gets a socket from the operator."""
    in_background = _IN_BACKGROUND.replace("sleep 1", "until test -e /tmp/in-transit; do :; done")
    assert runs.run("attacker", _script(_IN_TRANSIT, in_background))["successful"]
    later = runs.run("victim", "- shell: cat /tmp/in-transit; touch /tmp/in-transit-seen\n")
    assert (later["successful"], later["output"]) == (True, str(errno.ETOOMANYREFS)), later


_CHAIN = """
import os, signal, time


def parent(pid):
    return int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[1])


def may_signal(pid):
    try:
        os.kill(pid, 0)
        return True
    except OSError:
        return False


chain, pid = [], os.getpid()
while pid > 1:
    chain.append(pid)
    pid = parent(pid)
if not os.fork():
    os.setsid()
    until = time.monotonic() + 5
    while time.monotonic() < until:
        if os.fork():
            os._exit(0)
    os._exit(0)
time.sleep(0.3)
os.kill([each for each in chain if may_signal(each)][-1], signal.SIGKILL)
"""


def test_a_killed_run_that_forks_all_the_time_does_not_stop_later_runs(runs: ImageRuns) -> None:
    """The fork server ends what a killed run has left, for a limited time."""
    assert not runs.run("attacker", _script(_CHAIN))["successful"]
    for _ in range(3):
        assert runs.run("victim", "- debug:\n")["successful"]
