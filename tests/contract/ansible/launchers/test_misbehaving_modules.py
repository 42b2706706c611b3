"""Modules that crash, print additional output, hang, and change their environment."""

from __future__ import annotations

import pytest

from tests.contract.ansible.launchers.launching import Both
from tests.contract.ansible.launchers.projects import Project, library


def _tasks(*names: str) -> str:
    tasks = [f"- name: {name}\n  {name}:\n  ignore_errors: true\n" for name in names]
    return "".join(tasks) + "- name: Last\n  command: echo still here\n"


@pytest.mark.slow
def test_a_crashing_module_fails_only_its_task(both: Both) -> None:
    """If a module ends without a result, only its task fails, with the reason."""
    modules = library(
        raising="raise ValueError('why ü')\n",
        raising_in_main="""
def main():
    module = AnsibleModule({})
    module.warn('before')
    {}['missing']
main()
""",
        syntax="this is no python\n",
        no_import="import no_such_package\n",
        no_utils="from ansible.module_utils.no_such_util import x\n",
        exiting="AnsibleModule({})\nsys.exit(3)\n",
        exiting_with_words="sys.exit('some words')\n",
        exiting_at_once="os._exit(5)\n",
        killed="os.kill(os.getpid(), signal.SIGKILL)\n",
        terminated="os.kill(os.getpid(), signal.SIGTERM)\n",
        interrupted="raise KeyboardInterrupt\n",
        aborted="os.abort()\n",
        silent="pass\n",
        failing="AnsibleModule({}).fail_json(msg='no', rc=9, extra=[1])\n",
        failing_in_words="AnsibleModule({}).fail_json('only words')\n",
        unknown_argument="AnsibleModule({'x': {'type': 'int', 'required': True}})\n",
        result_then_crash="""
import atexit
atexit.register(lambda: os._exit(7))
AnsibleModule({}).exit_json(said='done')
""",
        recursing="def f():\n    f()\nf()\n",
    )
    names = [path.split("/")[-1].removesuffix(".py") for path in modules]
    record = both(Project(_tasks(*names), modules))
    assert record.outcome.successful
    assert "why ü" in str(record.result("raising"))
    assert record.result("exiting_at_once")["rc"] == 5
    assert record.result("killed")["rc"] == 137
    assert record.result("failing")["extra"] == [1]
    assert record.result("unknown_argument")["msg"] == "missing required arguments: x"
    for name in names:
        assert record.kinds(task=name)[-1] == "runner_on_failed" or name == "result_then_crash"


@pytest.mark.slow
def test_verbose_crashes_are_reported_equally(both: Both) -> None:
    """With -v the longer message of a failure is the same."""
    modules = library(raising="raise ValueError('why')\n", exiting="sys.exit(3)\n")
    record = both(Project(_tasks("raising", "exiting"), modules, verbosity=1))
    assert "why" in str(record.result("raising"))


@pytest.mark.slow
def test_output_around_a_result_is_handled_equally(both: Both) -> None:
    """Words before, after or instead of the result; on standard error; in other encodings."""
    modules = library(
        before="print('rubbish before')\nAnsibleModule({}).exit_json(said='x')\n",
        after="""
import atexit
atexit.register(lambda: print('rubbish after'))
AnsibleModule({}).exit_json(said='x')
""",
        around="print('[1]')\nprint('{')\nAnsibleModule({}).exit_json(said='x')\n",
        instead="print('nothing but rubbish')\n",
        half="print('{\"changed\": tr')\n",
        own_json="print(json.dumps({'changed': True, 'said': 'own'}))\n",
        a_list="print('[1, 2]')\n",
        twice="print('{\"changed\": true}')\nprint('{\"changed\": false}')\n",
        complaining="print('oh', file=sys.stderr)\nAnsibleModule({}).exit_json(said='x')\n",
        complaining_only="print('oh', file=sys.stderr)\nsys.exit(4)\n",
        complaining_at_the_end="print('oh', file=sys.stderr)\nos._exit(4)\n",
        raw_bytes="os.write(1, b'\\xff\\xfe\\x00')\nAnsibleModule({}).exit_json(said='x')\n",
        a_child="os.system('echo from a child')\nAnsibleModule({}).exit_json(said='x')\n",
        closing="os.close(1)\nos.close(2)\n",
        unflushed="sys.stdout.write('no newline')\nAnsibleModule({}).exit_json(said='x')\n",
        odd_keys="AnsibleModule({}).exit_json(ansible_facts={'own': 1}, _ansible_x=2, item='i')\n",
        invocation="AnsibleModule({}).exit_json(invocation='mine', failed=False, rc=1)\n",
    )
    names = [path.split("/")[-1].removesuffix(".py") for path in modules]
    tasks = _tasks(*names) + "- name: Fact\n  debug: {var: own}\n"
    record = both(Project(tasks, modules))
    assert record.outcome.successful
    assert record.result("before")["said"] == "x"
    assert "did not handle its own exit" in str(record.result("instead"))
    assert record.result("Fact")["own"] == 1


def test_changes_to_the_process_do_not_outlive_the_module(both: Both) -> None:
    """Changes of a module to its process do not affect the next module, plugin and task."""
    modules = library(
        vandal="""
import ansible.module_utils.basic as basic, builtins, locale, random, resource, socket
module = AnsibleModule({})
os.environ['VANDAL'] = 'was here'
os.environ['PATH'] = '/vandal:' + os.environ['PATH']
os.chdir('/')
os.umask(0)
for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE, signal.SIGINT, signal.SIGALRM):
    signal.signal(number, signal.SIG_IGN)
signal.alarm(1)
resource.setrlimit(resource.RLIMIT_NOFILE, (50, 50))
os.nice(5)
basic.AnsibleModule.exit_json = None
json.dumps = None
sys.path.insert(0, '/vandal')
sys.modules['socket'] = None
builtins.VANDAL = True
socket.setdefaulttimeout(0.001)
random.seed(0)
os.set_blocking(0, False)
print('{"changed": true}')
sys.stdout.flush()
os._exit(0)
""",
        witness="""
import builtins, resource, socket
module = AnsibleModule({})
mask = os.umask(0)
module.exit_json(
    variable=os.environ.get('VANDAL'),
    path='/vandal' in os.environ['PATH'] or '/vandal' in sys.path,
    cwd=os.getcwd(),
    umask=oct(mask),
    signals={
        number.name: str(signal.getsignal(number))
        for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE, signal.SIGINT,
                       signal.SIGALRM, signal.SIGHUP, signal.SIGUSR1)
    },
    blocked=sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    limits=resource.getrlimit(resource.RLIMIT_NOFILE),
    nice=os.nice(0),
    builtin=hasattr(builtins, 'VANDAL'),
    timeout=socket.getdefaulttimeout(),
    argv=len(sys.argv),
    main=__name__,
    descriptors=sorted(os.listdir('/proc/self/fd'))[:3],
    encoding=[sys.stdout.encoding, sys.stdout.errors],
    flags=[sys.getfilesystemencoding(), sys.flags.utf8_mode],
    dont_write=sys.dont_write_bytecode,
    threads=__import__('threading').active_count(),
    session=os.getsid(0) == os.getpid(),
    children=__import__('subprocess').run(
        ['sh', '-c', 'umask; pwd; echo $VANDAL; ulimit -n; nice'],
        capture_output=True, text=True, check=True).stdout,
)
""",
    )
    tasks = """
- name: Before
  witness:
- name: Vandal
  vandal:
- name: After
  witness:
- name: Shell
  shell: umask; pwd; echo "v=$VANDAL"; ulimit -n; trap; nice
- name: Controller
  debug: {msg: "{{ lookup('env', 'VANDAL') }}|{{ lookup('pipe', 'pwd; umask; nice') }}"}
- name: Copied
  copy: {content: x, dest: '{{ out }}/copied'}
"""
    record = both(Project(tasks, modules))
    before, after = (
        {key: value for key, value in record.result(task).items() if key != "_ansible_no_log"}
        for task in ("Before", "After")
    )
    assert before == after
    assert before["variable"] is None
    assert record.files["copied"] == "0o100644 x"


@pytest.mark.local_only("the temporary directory is that of the Pod")
def test_leaks_and_daemons_disturb_no_other_module(both: Both) -> None:
    """A module that uses much memory or leaves a daemon does not affect other tasks."""
    modules = library(
        leaking="""
hoard = [bytearray(1024 * 1024) for _ in range(200)]
AnsibleModule({}).exit_json(megabytes=len(hoard))
""",
        daemon="""
module = AnsibleModule({'out': {}})
if os.fork() == 0:
    os.setsid()
    for number in (0, 1, 2):
        os.dup2(os.open(os.devnull, os.O_RDWR), number)
    while not os.path.exists(module.params['out'] + '/asked'):
        time.sleep(0.02)
    open(module.params['out'] + '/answer', 'w').write('daemon lives')
    os._exit(0)
module.exit_json(changed=True)
""",
        threads="""
import threading
module = AnsibleModule({})
done = []
threads = [threading.Thread(target=lambda: done.append(1)) for _ in range(20)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
module.exit_json(threads=len(done))
""",
        children="""
import multiprocessing, subprocess
def double(value):
    return 2 * value
if __name__ == '__main__':
    module = AnsibleModule({})
    with multiprocessing.get_context('fork').Pool(2) as pool:
        doubled = pool.map(double, [1, 2])
    said = module.run_command('echo $HOME; exit 3', use_unsafe_shell=True)
    module.exit_json(doubled=doubled, said=said)
""",
        temporary="""
import tempfile
module = AnsibleModule({})
module.add_cleanup_file(module.tmpdir + '/gone')
open(module.tmpdir + '/gone', 'w').close()
module.exit_json(private=oct(os.stat(module.tmpdir).st_mode),
                 free=os.path.dirname(tempfile.mkdtemp()))
""",
    )
    tasks = """
- name: Leaking
  leaking:
- name: Daemon
  daemon: {out: '{{ out }}'}
- name: Ask
  copy: {content: x, dest: '{{ out }}/asked'}
- name: Answer
  wait_for: {path: '{{ out }}/answer', search_regex: lives, timeout: 180, sleep: 1}
- name: Threads
  threads:
- name: Children
  children:
- name: Temporary
  temporary:
"""
    record = both(Project(tasks, modules))
    assert record.outcome.successful, record.outcome.failures
    assert record.result("Leaking")["megabytes"] == 200
    assert record.files["answer"].endswith("daemon lives")
    assert record.result("Children")["doubled"] == [2, 4]
    assert record.result("Threads")["threads"] == 20
