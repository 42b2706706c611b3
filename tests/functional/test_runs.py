"""`operator-runner runs` and the API of a real operator, also through the proxy of its Pod."""

from __future__ import annotations

import html.parser
import json
import re
import shutil
import signal
import socket
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from operator_runner.devcluster import Cluster
from tests.functional.conftest import PROJECT
from tests.functional.test_operator import KIND, ROLE, echo
from tests.support.kubectl import Json, Kubectl
from tests.support.operator import Operator, free_port
from tests.support.runner_cli import RunnerCli
from tests.support.scaffold import OPERATOR_RUNNER
from tests.support.waiting import eventually

URLS = "--non-resource-url=/operator-runner"
PASSWORD = "correct-horse-battery"
TASKS = f"""
- name: Write a Secret
  no_log: true
  when: with_secret | default(false)
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata:
        name: "{{{{ ansible_operator_meta.name }}}}-hidden"
        namespace: "{{{{ ansible_operator_meta.namespace }}}}"
      data:
        text: "{PASSWORD} {{{{ say_this }}}}"
- name: Wait for a file
  when: wait_for is defined
  ansible.builtin.wait_for:
    path: "{{{{ wait_for }}}}"
- name: Refuse
  when: refuse | default(false)
  ansible.builtin.fail:
    msg: "not <b>today</b>"
"""


@dataclass(frozen=True)
class RunningOperator:
    """An operator that serves its API to other machines, with its namespace."""

    operator: Operator
    kubectl: Kubectl
    kubeconfig: Path
    port: int

    @property
    def work_dir(self) -> str:
        return f"--work-dir={self.operator.scratch / 'work'}"

    @property
    def cli(self) -> RunnerCli:
        return RunnerCli(self.kubeconfig, self.kubectl.namespace)

    def runs(self, name: str) -> list[Json]:
        """Return the runs of a resource, newest first."""
        text = self.cli("runs", f"echo/{name}", self.work_dir, "-o", "json")
        return list(json.loads(text)["items"])

    def last_run(self, name: str, outcome: str) -> Json:
        """Wait until the newest run of a resource has this outcome; return all about it."""
        [run, *_] = eventually(
            lambda: self.runs(name),
            lambda found: found and found[0]["outcome"] == outcome,
            details=self.operator.log,
        )
        return self.show(run["id"])

    def durations(self, name: str) -> list[float]:
        """Return the duration of the only run of a resource: of the API, and of an Event."""
        why = ("why", f"echo/{name}", "--output=json")
        of_event = eventually(
            lambda: json.loads(self.cli(*why))["items"], lambda found: len(found) == 1
        )
        return [each["seconds"] for each in (*self.runs(name), *of_event)]

    def show(self, run_id: str) -> Json:
        shown: Json = json.loads(self.cli("runs", "show", run_id, self.work_dir, "-o", "json"))
        return shown


@pytest.fixture(scope="module")
def running(
    control_plane_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningOperator]:
    """Start one operator for all tests of the module."""
    kubectl = Kubectl.in_new_namespace(control_plane_cluster)
    scratch = tmp_path_factory.mktemp("runs")
    project = Path(shutil.copytree(PROJECT, scratch / "project"))
    role = project / ROLE
    role.write_text(role.read_text() + TASKS)
    kubeconfig = control_plane_cluster.kubeconfig
    operator, port = Operator(project, kubeconfig, kubectl.namespace, scratch, {}), free_port()
    operator.start(f"--metrics-bind-address=:{port}", "--metrics-secure", "--metrics-require-rbac")
    try:
        yield RunningOperator(operator, kubectl, kubeconfig, port)
    finally:
        operator.terminate()


def own_address() -> str:
    """Return an address of this machine that is not on loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])


def test_a_run_has_causes_tasks_changed_fields_output_and_log(running: RunningOperator) -> None:
    """The list and the details of a run that changed a field; `run show` is `runs show`.

    The first run waits for Ansible, which is not part of its duration.
    """
    running.kubectl.apply(echo("shown", sayThis="1"))
    running.last_run("shown", "succeeded")
    assert len(set(running.durations("shown"))) == 1
    running.kubectl.merge(KIND, "shown", {"spec": {"sayThis": "2"}})
    run = eventually(
        lambda: running.last_run("shown", "succeeded"),
        lambda found: found["causes"][0]["detail"] == "spec.sayThis",
    )
    [task] = [each for each in run["tasks"] if each["name"] == "Say what the resource says"]
    assert task["result"] == "changed"
    assert task["seconds"] > 0
    [change] = [each for each in run["changes"] if each["object"]["kind"] == "ConfigMap"]
    assert (change["path"], change["before"], change["after"]) == (
        "data.text",
        '"hello 1"',
        '"hello 2"',
    )
    assert change["task"] == task["name"]
    assert "TASK [echo : Say what the resource says]" in run["output"]
    assert any("[playbook task]" in line for line in run["log"])
    assert {"GET", "PATCH"} & {each["method"] for each in run["requests"]}

    row = running.cli("runs", "echo/shown", running.work_dir).splitlines()[1].split()
    assert row[:3] == [run["id"], "echo/shown", "Succeeded"]
    text = running.cli("run", "show", run["id"], running.work_dir)
    assert '+ data.text: "hello 2"' in text
    assert "\x1b" not in text
    missing = running.cli.run("runs", "show", "0123456789abcdef", running.work_dir)
    assert (missing.returncode, "is not kept" in missing.stderr) == (1, True)


def test_a_run_contains_nothing_that_no_log_hides(running: RunningOperator) -> None:
    """Neither output, nor log, nor the values of fields that such a task wrote."""
    running.kubectl.apply(echo("hidden", sayThis="1", withSecret=True))
    running.last_run("hidden", "succeeded")
    running.kubectl.merge(KIND, "hidden", {"spec": {"sayThis": "2"}})
    run = eventually(
        lambda: running.last_run("hidden", "succeeded"),
        lambda found: any(each["object"]["name"] == "hidden-hidden" for each in found["changes"]),
    )
    assert PASSWORD not in json.dumps(run)
    [change] = [each for each in run["changes"] if each["object"]["name"] == "hidden-hidden"]
    assert (change["path"], change["hidden"]) == ("data.text", True)


class _Page(html.parser.HTMLParser):
    """Collects the tags and the links of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links += [str(value) for name, value in attrs if name in {"src", "href"}]


def test_the_report_of_a_failed_run_is_one_page_that_escapes_markup(
    running: RunningOperator, tmp_path: Path
) -> None:
    """It has the tasks and the failure, escaped, and refers to no other resource."""
    running.kubectl.apply(echo("refused", refuse=True))
    run = running.last_run("refused", "failed")
    assert run["failedTask"]["name"] == "Refuse"
    file = tmp_path / "out.html"
    running.cli("runs", "show", run["id"], running.work_dir, f"--html={file}")
    nowhere = tmp_path / "none" / "out.html"
    failed = running.cli.run("runs", "show", run["id"], running.work_dir, f"--html={nowhere}")
    assert (failed.returncode, failed.stderr) == (
        1,
        f"Error: {nowhere}: No such file or directory\n",
    )
    text = file.read_text()
    page = _Page()
    page.feed(text)
    assert not page.tags & {"script", "b", "link", "img"}
    assert page.links == []
    assert "not &lt;b&gt;today&lt;/b&gt;" in text
    assert "Say what the resource says" in text
    # Another test copies the work dir, which no retry is to change meanwhile.
    running.kubectl("delete", KIND, "refused")


def test_logs_follow_a_run_until_it_ends(running: RunningOperator, tmp_path: Path) -> None:
    """The output is printed while the run is in progress, and the command ends with the run."""
    gate = tmp_path / "gate"
    running.kubectl.apply(echo("followed", waitFor=str(gate)))
    running.last_run("followed", "running")
    log = tmp_path / "out.txt"
    with log.open("w") as out:
        following = subprocess.Popen(
            [
                *(OPERATOR_RUNNER, "runs", "logs", "-f", "echo/followed", running.work_dir),
                *(f"--namespace={running.cli.namespace}", f"--kubeconfig={running.kubeconfig}"),
            ],
            stdout=out,
        )
    eventually(log.read_text, lambda text: "TASK [echo : Wait for a file]" in text)
    gate.touch()
    assert following.wait(180) == 0
    assert "PLAY RECAP" in log.read_text()


def test_watched_runs_are_printed_as_they_begin_and_end(
    running: RunningOperator, tmp_path: Path
) -> None:
    """Below the list, until Ctrl-C; `get` has the retry of the queue."""
    log, gate = tmp_path / "watch.txt", tmp_path / "gate"
    with log.open("w") as out:
        watching = subprocess.Popen(
            [
                *(OPERATOR_RUNNER, "runs", "--watch", "echo/watched", running.work_dir),
                *(f"--namespace={running.cli.namespace}", f"--kubeconfig={running.kubeconfig}"),
            ],
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    eventually(log.read_text, bool)
    running.kubectl.apply(echo("watched", waitFor=str(gate), refuse=True))
    eventually(log.read_text, lambda text: re.search("echo/watched +Running", text))
    gate.touch()
    eventually(log.read_text, lambda text: re.search("echo/watched +Failed", text))
    watching.send_signal(signal.SIGINT)
    assert watching.wait(180) == 130
    listed = eventually(
        lambda: json.loads(running.cli("get", "echo/watched", running.work_dir, "--output=json")),
        lambda found: "nextRun" in found["items"][0],
    )
    assert "retry" in listed["items"][0]["nextCause"]


def test_the_end_of_a_watched_run_is_printed_though_its_resource_is_deleted(
    running: RunningOperator, tmp_path: Path
) -> None:
    """The operator drops the runs with the resource; each that has begun has an end."""
    log, gate = tmp_path / "watch.txt", tmp_path / "gate"
    with log.open("w") as out:
        watching = subprocess.Popen(
            [
                *(OPERATOR_RUNNER, "runs", "--watch", "--output=json", running.work_dir),
                *("echo/gone", f"--namespace={running.cli.namespace}"),
                f"--kubeconfig={running.kubeconfig}",
            ],
            stdout=out,
        )

    def outcomes() -> dict[str, str]:
        """Return the last outcome of each run; a line may be incomplete while it is written."""
        lines = log.read_text().splitlines(keepends=True)
        runs = [json.loads(line) for line in lines if line.endswith("\n")]
        return {each["id"]: each["outcome"] for each in runs}

    running.kubectl.apply(echo("gone", waitFor=str(gate)))
    eventually(outcomes, lambda found: "running" in found.values())
    running.kubectl("delete", KIND, "gone", "--wait=false")
    gate.touch()
    running.kubectl("wait", "--for=delete", f"{KIND}/gone", "--timeout=180s")
    eventually(outcomes, lambda found: "running" not in found.values())
    watching.send_signal(signal.SIGINT)
    assert watching.wait(180) == 130


def test_runs_are_read_through_the_proxy_of_the_operators_pod(
    running: RunningOperator, tmp_path: Path
) -> None:
    """Users without permission to create a token are referred to the Events."""
    kubectl = running.kubectl
    kubectl.apply(echo("remote", sayThis="1"))
    run_id = running.last_run("remote", "succeeded")["id"]
    kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=180s")
    flags = [f"--metrics-bind-address=:{running.port}", "--metrics-secure"]
    kubectl.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "manager", "labels": {"control-plane": "controller-manager"}},
            "spec": {
                "containers": [
                    {
                        "name": "manager",
                        "image": "example.com/operator",
                        "args": [*flags, "--metrics-require-rbac"],
                    }
                ]
            },
        }
    )
    status = {"status": {"phase": "Running", "podIP": own_address()}}
    patch = f"--patch={json.dumps(status)}"
    kubectl("patch", "pod", "manager", "--subresource=status", "--type=merge", patch)
    denied = running.cli.run("runs", "echo/remote")
    assert (denied.returncode, "Authorization denied" in denied.stderr) == (3, True), denied.stderr
    name = f"runs-reader-{kubectl.namespace}"
    kubectl(
        *("create", "clusterrole", name, "--verb=get"),
        *(f"{URLS}/api/v1", f"{URLS}/api/v1/*"),
    )
    account = f"--serviceaccount={kubectl.namespace}:default"
    kubectl("create", "clusterrolebinding", name, f"--clusterrole={name}", account)
    # A refusal is cached for some seconds.
    rows = eventually(
        lambda: running.cli.run("runs", "echo/remote"), lambda done: done.returncode == 0
    ).stdout
    assert run_id in rows
    wide = running.cli("runs", "echo/remote", "--output=wide").splitlines()
    column = wide[0].index("OPERATOR")
    assert wide[1][column:].startswith(f"Pod {kubectl.namespace}/manager ")
    assert running.cli("runs", "echo/remote", "--output=name") == f"{run_id}\n"
    assert "Tasks:" in running.cli("runs", "show", run_id)
    assert run_id in running.cli("run", "show", "echo/remote")
    [item] = eventually(
        lambda: json.loads(running.cli("get", "echo/remote", "-o", "json"))["items"],
        lambda items: "nextRun" in items[0],
    )
    assert item["nextCause"] == "period: 10h"

    kubectl("create", "serviceaccount", "poor")
    kubectl("create", "rolebinding", "poor", "--clusterrole=view", f"{account[:-7]}poor")
    kubectl(
        *("create", "clusterrole", f"{name}-kind", "--verb=get,list"),
        "--resource=echoes.test.example.com",
    )
    kubectl("create", "rolebinding", "kind", f"--clusterrole={name}-kind", f"{account[:-7]}poor")
    poor = RunnerCli(kubectl.kubeconfig("poor", tmp_path), kubectl.namespace)
    done = poor.run("runs", "echo/remote")
    assert done.returncode == 3
    assert "cannot create a token" in done.stderr
    assert "`operator-runner why KIND/NAME` lists the runs in Events" in done.stderr
    assert run_id in poor.run("why", "echo/remote").stdout
    assert poor.run("runs", "show", "4f0c19d2a8b3e671").returncode == 3


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}])
def test_the_api_is_closed_without_key_and_token(
    running: RunningOperator, headers: dict[str, str]
) -> None:
    """Access to the port does not suffice."""
    assert status_of(running, "/api/v1/runs", headers) == 401


def test_the_api_has_queue_schedules_and_dependents(running: RunningOperator) -> None:
    """They are read with the key in the work dir; a resource that succeeded is due later."""
    running.kubectl.apply(echo("queued", sayThis="1"))
    running.last_run("queued", "succeeded")
    [entry] = eventually(
        lambda: api(running, "/api/v1/queue?name=queued")["items"],
        lambda found: found and found[0]["state"] == "Delayed",
    )
    assert entry["causes"] == [{"trigger": "period", "detail": "10h"}]
    assert entry["due"] > ""
    [owned] = api(running, "/api/v1/dependents?name=queued")["items"]
    assert [each["kind"] for each in owned["objects"]] == ["ConfigMap"]
    assert api(running, "/api/v1/schedules")["items"] == []
    assert api(running, "/api/v1")["leading"] is True


def api(running: RunningOperator, path: str) -> Any:
    access = json.loads((running.operator.scratch / "work" / "api.json").read_text())
    with _open(running, path, {"Authorization": f"Bearer {access['key']}"}) as answer:
        return json.load(answer)


def status_of(running: RunningOperator, path: str, headers: dict[str, str]) -> int:
    try:
        with _open(running, path, headers) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def _open(running: RunningOperator, path: str, headers: dict[str, str]) -> Any:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    request = urllib.request.Request(f"https://127.0.0.1:{running.port}{path}", headers=headers)
    return urllib.request.urlopen(request, context=context, timeout=60)
