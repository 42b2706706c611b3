"""`operator-runner suspend`, `resume`, `reconcile` and `retry`, with an operator and without."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import yaml

from operator_runner.reconcile.annotations import HANDLED_ANNOTATION, REQUEST_ANNOTATION
from tests.functional.test_operator import KIND, ROLE, echo, text_of, wait_for_text
from tests.support.kubectl import Json, Kubectl
from tests.support.operator import Operator
from tests.support.runner_cli import RunnerCli
from tests.support.scaffold import OPERATOR_RUNNER
from tests.support.waiting import eventually

NAME = "echoes/a"
WAIT = {
    "name": "Wait for the ConfigMap go",
    "kubernetes.core.k8s_info": {
        "api_version": "v1",
        "kind": "ConfigMap",
        "name": "go",
        "namespace": "{{ ansible_operator_meta.namespace }}",
    },
    "register": "go",
    "until": "go.resources | length > 0",
    "retries": 3000,
    "delay": 0.2,
}


def conditions(kubectl: Kubectl) -> dict[str, Json]:
    body = kubectl.get(KIND, "a")
    assert body is not None
    return {each["type"]: each for each in body.get("status", {}).get("conditions", ())}


def runs(operator: Operator, name: str = "a") -> list[str]:
    """Return the causes of the runs of a resource that have ended."""
    ended = operator.lines("Reconciled", "Reconciliation failed", "Finalized")
    return [line["cause"] for line in ended if line["name"] == name]


def version(kubectl: Kubectl) -> str:
    body = kubectl.get(KIND, "a")
    assert body is not None
    return str(body["metadata"]["resourceVersion"])


def prepend(project: Path, *tasks: Json) -> None:
    """Put tasks before those of the role."""
    role = project / ROLE
    role.write_text(json.dumps(list(tasks))[:-1] + "," + json.dumps(_tasks(role))[1:])


def _tasks(role: Path) -> list[Json]:
    return list(yaml.safe_load(role.read_text()))


def test_nothing_runs_while_suspended_and_one_run_follows_the_resume(
    cli: RunnerCli, kubectl: Kubectl, operator: Operator
) -> None:
    """Edits, deletions of dependents and requests wait; a deletion keeps its finalizer."""
    operator.start()
    kubectl.apply(echo(sayThis="1"))
    wait_for_text(kubectl, operator, "hello 1")
    kubectl("wait", "--for=condition=Successful", f"{KIND}/a", "--timeout=180s")
    before = len(runs(operator))

    # By default it waits for the operator for some seconds only.
    patient = "--timeout=180s"
    assert "echo.test.example.com/a suspended" in cli("suspend", NAME, patient)
    condition = conditions(kubectl)["Suspended"]
    assert condition["status"] == "True"
    resume = "operator-runner resume echo.test.example.com/a"
    assert f"{resume} --namespace {kubectl.namespace}" in condition["message"]
    assert operator.metric("operator_runner_suspended_resources", kind="Echo") == 1
    assert "is already suspended" in cli("suspend", NAME)
    assert f"until `{resume} -n {cli.namespace}`" in cli("why", NAME)

    kubectl.merge(KIND, "a", {"spec": {"sayThis": "2"}})
    kubectl("delete", "configmap", "a")
    edited = version(kubectl)
    refused = cli.run("reconcile", NAME, "--wait")
    assert (refused.returncode, "is suspended; to resume:" in refused.stderr) == (1, True)
    # Runs of one operator are in order: those of `a` would have begun before that of `b`.
    kubectl.apply(echo("b"))
    wait_for_text(kubectl, operator, "hello nothing", "b")
    assert text_of(kubectl) is None
    assert len(runs(operator)) == before
    assert version(kubectl) == edited

    assert "echo.test.example.com/a resumed" in cli("resume", NAME)
    wait_for_text(kubectl, operator, "hello 2")
    kubectl("wait", "--for=condition=Successful", f"{KIND}/a", "--timeout=180s")
    assert "Suspended" not in conditions(kubectl)
    assert runs(operator)[before:] == ["annotation: resumed"]
    assert operator.metric("operator_runner_suspended_resources", kind="Echo") == 0

    cli("suspend", NAME, patient)
    kubectl("delete", KIND, "a", "--wait=false")
    eventually(
        lambda: conditions(kubectl)["Suspended"]["message"],
        lambda text: "the deletion waits for the finalizer test.example.com/farewell" in text,
        details=operator.log,
    )
    assert "being deleted; no clean-up runs until it is resumed" in cli("get", NAME)
    assert "Suspended while being deleted: no clean-up runs until `" in cli("why", NAME)
    assert json.loads(cli("why", NAME, "--output=json"))["deleting"] is True
    cli("resume", NAME, "--timeout=0s")
    kubectl("wait", "--for=delete", f"{KIND}/a", "--timeout=180s")
    # Logged after the finalizer is removed.
    eventually(lambda: runs(operator)[before:], (["annotation: resumed"] * 2).__eq__)


def test_a_current_run_ends_by_itself_or_is_cancelled(
    cli: RunnerCli, kubectl: Kubectl, operator: Operator, project: Path
) -> None:
    """Without --cancel the run continues; with it the run is ended, and none follows."""
    prepend(project, WAIT)
    operator.start()
    kubectl.apply(echo(sayThis="1"))
    eventually(
        lambda: conditions(kubectl).get("Running", {}).get("reason"),
        lambda reason: reason == "Running",
        details=operator.log,
    )
    warned = cli.run("suspend", NAME, "--timeout=1s")
    assert warned.returncode == 0
    assert "the current run continues" in warned.stderr
    assert not runs(operator)

    cli("suspend", NAME, "--cancel", "--timeout=180s")
    running = conditions(kubectl)["Running"]
    assert (running["status"], running["reason"]) == ("False", "SuspendedByAnnotation")
    assert text_of(kubectl) is None
    assert operator.metric("operator_runner_runs_total", outcome="superseded") == 1

    kubectl("create", "configmap", "go")
    cli("resume", NAME)
    wait_for_text(kubectl, operator, "hello 1")


def test_a_requested_run_ends_the_wait_with_its_outcome(
    cli: RunnerCli, kubectl: Kubectl, operator: Operator, project: Path
) -> None:
    """Exit status 3 without an operator, 0 for a success, 1 with the task that failed."""
    kubectl.apply(echo(sayThis="1"))
    silent = cli.run("reconcile", NAME, "--wait", "--timeout=0s")
    assert silent.returncode == 3
    assert "none has written its conditions" in silent.stderr

    operator.start()
    assert "echo.test.example.com/a succeeded (run " in cli("reconcile", NAME, "--wait")
    before = len(runs(operator))
    kubectl("delete", "configmap", "a", "--wait=false")
    assert "succeeded" in cli("reconcile", NAME, "--wait")
    assert any("annotation: run requested" in cause for cause in runs(operator)[before:])

    role = project / ROLE
    works = role.read_text()
    role.write_text(works + "- {name: Refuse, ansible.builtin.fail: {msg: not today}}\n")
    failed = cli.run("reconcile", NAME, "--wait")
    assert failed.returncode == 1
    assert "not today (task 'Refuse' at " in failed.stderr
    role.write_text(works)
    assert "succeeded" in cli("retry", NAME, "--wait")
    again = cli.run("reconcile", "echoes/b", "--wait")
    assert (again.returncode, "not found" in again.stderr) == (1, True)
    assert not operator.lines("Cannot answer the request")


def test_several_resources_are_waited_for_together(
    cli: RunnerCli, kubectl: Kubectl, tmp_path: Path
) -> None:
    """Each end is printed when it is there, also if the resource is deleted at once."""

    def answer(name: str) -> None:
        body = kubectl.get(KIND, name)
        assert body is not None
        request = body["metadata"]["annotations"][REQUEST_ANNOTATION]
        handled = json.dumps({"id": request, "result": "succeeded"})
        kubectl("annotate", KIND, name, f"{HANDLED_ANNOTATION}={handled}")

    kubectl.apply(echo(), echo("b"))
    log = tmp_path / "log"
    with _started(cli, log, "reconcile", "echo/a", "echo/b", "--wait") as process:
        eventually(log.read_text, lambda text: text.count("run requested") == 2)
        answer("b")
        eventually(log.read_text, lambda text: "echo.test.example.com/b succeeded" in text)
        kubectl("delete", KIND, "b", "--wait=false")
        answer("a")
        assert process.wait(120) == 0, log.read_text()
    assert "echo.test.example.com/a succeeded" in log.read_text()


def test_several_suspensions_are_waited_for_together(
    cli: RunnerCli, kubectl: Kubectl, tmp_path: Path
) -> None:
    """One that fails is printed while the operator has not answered for another one."""
    kubectl.apply(echo(), echo("b"))
    log = tmp_path / "log"
    with _started(cli, log, "suspend", "echo/a", "echo/b", "--timeout=10m") as process:
        eventually(log.read_text, lambda text: text.count(" suspended") == 2)
        kubectl("delete", KIND, "b")
        eventually(log.read_text, lambda text: '"b" not found' in text)
        assert process.poll() is None
        shown = {"type": "Suspended", "status": "True", "reason": "SuspendedByAnnotation"}
        status = json.dumps({"status": {"conditions": [shown]}})
        kubectl("patch", KIND, "a", "--subresource=status", "--type=merge", f"--patch={status}")
        assert process.wait(120) == 1, log.read_text()


@contextmanager
def _started(cli: RunnerCli, log: Path, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """Give a command in the background that writes to a log."""
    where = (f"--namespace={cli.namespace}", f"--kubeconfig={cli.kubeconfig}")
    with log.open("w") as out:
        process = subprocess.Popen([OPERATOR_RUNNER, *command, *where], stdout=out, stderr=out)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_deletion_ends_the_wait_and_is_a_success_of_a_clean_up_only(
    cli: RunnerCli, kubectl: Kubectl
) -> None:
    """Also if the resource is created again; with `--all`, deleted resources are left out."""

    def wait_during(edit: Callable[[], object], *wanted: str) -> tuple[int, str, str]:
        """Request a run, make the edit, and return exit status, result and errors."""
        kubectl("annotate", KIND, "a", f"{REQUEST_ANNOTATION}-")
        with ThreadPoolExecutor() as pool:
            done = pool.submit(cli.run, "reconcile", *wanted, "--wait", "--output=json")
            eventually(lambda: REQUEST_ANNOTATION in kubectl("get", KIND, "a", "--output=yaml"))
            edit()
            ended = done.result()
        [item] = json.loads(ended.stdout)["items"]
        return ended.returncode, item["result"], ended.stderr

    def delete() -> None:
        kubectl("delete", KIND, "a")

    def create_again() -> None:
        kubectl("replace", "--force", "--filename=-", input_=json.dumps(echo()))

    def end_clean_up() -> None:
        kubectl.merge(KIND, "a", {"metadata": {"finalizers": None}})

    kubectl.apply(echo())
    for edit in (create_again, delete):
        status, result, errors = wait_during(edit, NAME)
        assert (status, result) == (1, "deleted")
        assert "a deleted before the operator reported the end of the run" in errors
    kubectl.apply(echo())
    assert wait_during(delete, "echoes", "--all") == (0, "deleted", "")
    kubectl.apply(echo())
    kubectl.merge(KIND, "a", {"metadata": {"finalizers": ["test.example.com/other"]}})
    kubectl("delete", KIND, "a", "--wait=false")
    assert wait_during(end_clean_up, NAME) == (0, "deleted", "")


def test_all_resources_of_a_kind_are_requested_and_suspended(
    cli: RunnerCli, kubectl: Kubectl, operator: Operator
) -> None:
    """`--all` and `-A`, with the results as data; suspended ones are left out of requests."""
    missing = cli.run("suspend", "echoes")
    assert (missing.returncode, "or --all for all of its resources" in missing.stderr) == (2, True)
    assert cli.run("suspend", NAME, "--all").returncode == 2
    assert cli.run("suspend", NAME, "-A").returncode == 2
    assert "No resources found" in cli.run("retry", "echoes", "--all").stderr
    operator.start()
    for name in ("a", "b"):
        kubectl.apply(echo(name, sayThis="1"))
    requested = json.loads(cli("reconcile", "echoes", "--all", "--wait", "-o", "json"))["items"]
    assert [(each["name"], each["result"]) for each in requested] == [
        ("a", "succeeded"),
        ("b", "succeeded"),
    ]
    assert all(each["runID"] for each in requested)
    cli("suspend", NAME)
    rest = cli("retry", "echoes", "--all", "--wait").splitlines()
    assert rest[:2] == [
        "echo.test.example.com/a is suspended; skipped",
        "echo.test.example.com/b retry requested",
    ]
    assert rest[2].startswith("echo.test.example.com/b succeeded (run ")
    both = yaml.safe_load(cli("suspend", "echoes", "--all", "-o", "yaml"))["items"]
    assert [each["result"] for each in both] == ["unchanged", "suspended"]
    listed = cli("why", "echoes", "-A")
    for name in ("a", "b"):
        hint = f"operator-runner resume echo.test.example.com/{name} -n {cli.namespace}"
        assert f"Suspended echo/{name}: no run starts until `{hint}`." in listed
    everywhere = cli("resume", "echoes", "-A", "--timeout=0s")
    assert f"echo.test.example.com/b (namespace {cli.namespace}) resumed" in everywhere
