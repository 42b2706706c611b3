"""Modules that come with Ansible, on files, commands, HTTP and facts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tests.contract.ansible.launchers.launching import Both
from tests.contract.ansible.launchers.projects import Project


class _Answers(BaseHTTPRequestHandler):
    """Echoes requests, so that the result has the request of the client."""

    def do_GET(self) -> None:
        status = 404 if self.path == "/missing" else 200
        self._answer(status, f'{{"path": "{self.path}", "agent": "{self.headers["User-Agent"]}"}}')

    def do_POST(self) -> None:
        self._answer(201, self.rfile.read(int(self.headers["Content-Length"])).decode())

    def _answer(self, status: int, body: str) -> None:
        data = body.encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


@pytest.fixture
def server() -> Iterator[str]:
    """Serve HTTP on loopback; give the address."""
    with HTTPServer(("127.0.0.1", 0), _Answers) as served:
        thread = threading.Thread(target=served.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{served.server_port}"
        served.shutdown()
        thread.join()


def test_command_modules_return_output_and_status(both: Both) -> None:
    """Command, shell and script: output, exit status, input, directory, conditions."""
    tasks = """
- name: Output
  command: sh -c 'echo out; echo err >&2'
- name: Shell
  shell: |
    cat <<EOF
    {{ lines | join('\n    ') }}
    EOF
    echo "$0 $PWD"
  args: {chdir: '{{ out }}', executable: /bin/bash}
  vars: {lines: [one, zwei ü]}
- name: Input
  command: {cmd: cat, stdin: given ü, stdin_add_newline: false}
- name: Arguments
  command: {argv: [echo, 'a  b', '$HOME']}
- name: Created
  command: touch {{ out }}/made
  args: {creates: '{{ out }}/made'}
  loop: [1, 2]
- name: Bytes
  shell: printf 'a\\377b\\000c\\n'
  ignore_errors: true
- name: Script
  script: hello.sh world
- name: Script of another language
  script: {cmd: hello.py, executable: '{{ ansible_playbook_python }}'}
- name: Raw
  raw: echo raw; exit 3
  failed_when: false
- name: Missing
  command: /no/such/program
  ignore_errors: true
- name: Killed
  shell: kill -9 $$
  ignore_errors: true
- name: Expect nothing
  command:
  ignore_errors: true
"""
    files = {
        "roles/tried/files/hello.sh": "#!/bin/sh\necho hello $1\n",
        "roles/tried/files/hello.py": "print('hello from Python')\n",
    }
    record = both(Project(tasks, files))
    assert record.outcome.successful
    assert record.result("Output")["stdout"] == "out"
    assert record.result("Input")["stdout"] == "given ü"
    assert record.result("Killed")["rc"] == -9
    assert record.result("Raw")["rc"] == 3
    assert [result["changed"] for _, result in record.ends("Created")] == [True, False, True]


@pytest.mark.local_only("the messages are those of the operator's patches")
@pytest.mark.slow
def test_file_modules_write_the_same_files(both: Both) -> None:
    """Files, their modes and owners, lines, blocks, searches, archives and links."""
    tasks = """
- name: Directory
  file: {path: '{{ out }}/a/b', state: directory, mode: '0750'}
- name: Copy
  copy: {content: "one\\ntwo\\n", dest: '{{ out }}/a/text'}
- name: Structure
  copy: {content: '{{ {"k": ["v", 1]} }}', dest: '{{ out }}/structure.json', mode: u=rw}
- name: Tree
  copy: {src: tree/, dest: '{{ out }}/tree/', mode: preserve}
- name: Link
  file: {src: a/text, dest: '{{ out }}/link', state: link}
- name: Stat
  stat: {path: '{{ out }}/a/text', checksum_algorithm: sha256, get_attributes: false}
  register: text
- name: Checksum
  debug: {msg: '{{ text.stat.checksum }} {{ text.stat.mode }} {{ text.stat.pw_name }}'}
- name: Line
  lineinfile: {path: '{{ out }}/a/text', regexp: '^two', line: 2, backup: false}
- name: Block
  blockinfile: {path: '{{ out }}/a/text', block: "x\\ny", marker: '# {mark}'}
- name: Replace
  replace: {path: '{{ out }}/a/text', regexp: 'o(n)e', replace: '\\1'}
- name: Slurp
  slurp: {src: '{{ out }}/a/text'}
- name: Find
  find: {paths: '{{ out }}', recurse: true, patterns: '*t*'}
  register: found
- name: Found
  debug: {msg: "{{ found.files | map(attribute='path') | map('basename') | sort }}"}
- name: Owner
  file: {path: '{{ out }}/a/text', owner: nobody, mode: '0604'}
- name: Temporary
  tempfile: {path: '{{ out }}', prefix: tmp, suffix: .d, state: directory}
  register: temporary
- name: Remove
  file: {path: '{{ temporary.path }}', state: absent}
- name: Archive
  command: tar -C {{ out }} -cf {{ site }}/tree.tar tree
- name: Unarchive
  unarchive: {src: '{{ site }}/tree.tar', dest: '{{ out }}/a/b'}
- name: Assemble
  assemble: {src: '{{ out }}/tree', dest: '{{ out }}/assembled', delimiter: '--'}
- name: Fetch
  fetch: {src: '{{ out }}/link', dest: '{{ out }}/fetched', flat: true}
- name: Template
  template: {src: deep.j2, dest: '{{ out }}/deep', validate: 'grep -q deep %s'}
- name: Invalid
  template: {src: deep.j2, dest: '{{ out }}/deep2', validate: 'grep -q nothing %s'}
  ignore_errors: true
- name: Undefined
  template: {src: undefined.j2, dest: '{{ out }}/undefined'}
  ignore_errors: true
- name: Missing
  copy: {src: nowhere, dest: '{{ out }}/nowhere'}
  ignore_errors: true
- name: Denied
  file: {path: /proc/nothing, state: touch}
  ignore_errors: true
"""
    files = {
        "roles/tried/files/tree/x": "x\n",
        "roles/tried/files/tree/y/z.sh": "#!/bin/sh\n",
        "roles/tried/templates/deep.j2": "{% include 'part.j2' %} {{ template_path | basename }}\n",
        "roles/tried/templates/part.j2": "deep {{ ansible_managed }}",
        "roles/tried/templates/undefined.j2": "{{ nothing_of_the_kind }}",
    }
    record = both(Project(tasks, files))
    assert record.outcome.successful
    assert record.files["a"].startswith("0o40")
    assert record.files["a/text"] == "0o100604 n\n2\n# BEGIN\nx\ny\n# END\n"
    assert record.files["a/b/tree/y/z.sh"] == "0o100755 #!/bin/sh\n"
    assert record.files["link"] == "0o120777 -> a/text"
    assert record.result("Found")["msg"] == ["structure.json", "text"]


def test_http_modules_reach_a_server(both: Both, server: str) -> None:
    """Uri, get_url and wait_for against a server on loopback."""
    tasks = """
- name: Get
  uri: {url: '{{ server }}/x?y=1', return_content: true}
- name: Post
  uri:
    url: '{{ server }}/'
    method: POST
    body: {a: [1, ü]}
    body_format: json
    status_code: [201]
- name: Missing
  uri: {url: '{{ server }}/missing'}
  ignore_errors: true
- name: RejectedObject
  uri: {url: 'http://127.0.0.1:1/'}
  ignore_errors: true
- name: Download
  get_url: {url: '{{ server }}/file', dest: '{{ out }}/file', mode: '0600'}
- name: Open
  wait_for: {host: 127.0.0.1, port: '{{ server | urlsplit("port") }}', timeout: 5}
- name: Closed
  wait_for: {host: 127.0.0.1, port: 1, timeout: 1, msg: nobody there}
  ignore_errors: true
- name: Looked up
  debug: {msg: "{{ lookup('url', server ~ '/looked') | from_json }}"}
"""
    record = both(Project(tasks, variables={"server": server}))
    assert record.outcome.successful
    assert record.result("Get")["json"]["path"] == "/x?y=1"
    assert record.result("Post")["json"] == {"a": [1, "ü"]}
    assert record.result("Missing")["status"] == 404
    assert record.result("Closed")["msg"] == "nobody there"
    assert record.result("Looked up")["msg"]["path"] == "/looked"


@pytest.mark.local_only("capabilities of processes are those of the Pod")
def test_facts_are_the_same(both: Both) -> None:
    """Facts of the machine, of the environment and of the user's own fact files."""
    plays = """
- hosts: localhost
  gather_facts: true
  gather_subset: ['!all', '!min', 'python', 'user', 'env', 'platform']
  tasks:
    - name: Facts
      debug: {msg: '{{ ansible_user_id }} {{ ansible_facts.python.executable }}'}
    - name: Own
      setup: {gather_subset: ['!all', local], fact_path: '{{ site }}/facts.d'}
    - name: Ping
      ping: {data: pong ü}
    - name: Crash
      ping: {data: crash}
      ignore_errors: true
    - name: Packages
      service_facts:
      when: false
    - name: User
      getent: {database: passwd, key: nobody}
    - name: Filtered
      setup: {filter: [ansible_distribution, ansible_system]}
    - name: Cleared
      meta: clear_facts
    - name: Gone
      debug: {msg: '{{ ansible_facts.python is defined }}'}
    - name: Validated
      validate_argument_spec: {argument_spec: {size: {type: int}}, provided_arguments: {size: x}}
"""
    files = {
        "site.yml": plays,
        "facts.d/static.fact": '{"a": 1}\n',
        "facts.d/made.fact": "#!/bin/sh\necho '{\"b\": 2}'\n",
    }
    record = both(Project(files=files))
    assert record.result("Own")["ansible_facts"]["ansible_local"] == {
        "static": {"a": 1},
        "made": {"b": 2},
    }
    assert record.result("Ping")["ping"] == "pong ü"
    assert "boom" in str(record.result("Crash"))
    assert record.result("Gone")["msg"] is False
    assert [failure.task for failure in record.outcome.failures] == ["Validated"]


@pytest.mark.local_only("capabilities of processes are those of the Pod")
def test_setup_finds_the_same_facts(both: Both) -> None:
    """A whole `setup` finds the same facts, the environment of modules included.

    Without those of the network, whose interfaces come and go with the clusters of other tests,
    and of virtualization, some of which are sets in random order.
    """
    # After 10 s, its default, `setup` gives up on mounts.
    arguments = "{gather_subset: [all, '!network', '!virtual'], gather_timeout: 300}"
    record = both(Project(f"- name: Setup\n  setup: {arguments}\n"))
    facts = record.result("Setup")["ansible_facts"]
    assert {"ansible_memory_mb", "ansible_pkg_mgr", "ansible_mounts"} <= set(facts)
    # ansible-runner leaves the environment out of events.
    assert '"ansible_env"' in record.artifacts["fact_cache/s1_localhost"]
