"""`operator-runner get` and `tree` on a real API server."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from operator_runner.kube.cluster import (
    CAUSE_ANNOTATION,
    CONTROLLER,
    DURATION_ANNOTATION,
    RUN_ANNOTATION,
)
from tests.functional.test_operator import KIND, ROLE, echo, wait_for_text
from tests.support.kubectl import Kubectl
from tests.support.operator import Operator
from tests.support.runner_cli import RunnerCli
from tests.support.scaffold import OPERATOR_RUNNER
from tests.support.waiting import eventually

Json = dict[str, Any]


def cells(text: str) -> list[list[str]]:
    """Return the rows of a table, without its header."""
    return [line.split(maxsplit=6) for line in text.splitlines()[1:]]


def test_get_lists_resources_and_why_they_fail(
    cli: RunnerCli, kubectl: Kubectl, operator: Operator, project: Path, tmp_path: Path
) -> None:
    """Without an operator, after a success, after a failure, suspended, and as each changes."""
    kubectl.apply(echo(sayThis="1"))
    assert cells(cli("get", "echo"))[0][2] == "Unhandled"
    assert "no operator has written its conditions" in cli("get", "echoes/a")
    # As for kubectl, where the kind and the name are two arguments.
    assert "To name a resource, write echoes/a\n" in cli.run("get", "echoes", "a").stderr
    nothing = cli.run("get")
    assert (nothing.returncode, nothing.stdout) == (0, "")
    assert "No resource that an operator has handled" in nothing.stderr

    operator.start()
    wait_for_text(kubectl, operator, "hello 1")
    kubectl("wait", "--for=condition=Successful", f"{KIND}/a", "--timeout=180s")
    # The Event, which has the cause, is written after the status.
    name, ready, state, *_ = eventually(
        lambda: cells(cli("get"))[0], lambda row: row[-1] == "start", details=operator.log
    )
    assert (name, ready, state) == ("echo/a", "True", "Succeeded")

    with watching(cli, tmp_path, {"get": ("get",)}) as logs:
        log = logs["get"]
        eventually(log.read_text, lambda text: "Succeeded" in text)
        role = project / ROLE
        refuse = "- {name: Refuse, ansible.builtin.fail: {msg: not today}}\n"
        role.write_text(role.read_text() + refuse)
        kubectl.merge(KIND, "a", {"spec": {"sayThis": "2"}})
        eventually(log.read_text, lambda text: "Failed" in text and "(task 'Refuse'" in text)

    # Retries are in between.
    _, ready, _, last, next_, failing, why = eventually(
        lambda: cells(cli("get", "echoes"))[0], lambda row: row[2] == "Failed"
    )
    assert (ready, next_) == ("False", "retry")
    assert "not today (task 'Refuse' at roles/echo/tasks/main.yml:" in why
    assert last.endswith("s")
    assert failing.endswith("s")
    wide = cli("get", "-o", "wide")
    assert "MESSAGE" in wide
    assert "\x1b" not in wide
    [item] = json.loads(cli("get", "-o", "json"))["items"]
    assert item["state"] in {"Failed", "Running"}
    assert "not today (task 'Refuse'" in item["message"]
    cli("suspend", "echo/a", "--timeout=180s")
    [item] = yaml.safe_load(cli("get", "-o", "yaml"))["items"]
    assert item["state"] == "Suspended"
    everywhere = [line.split() for line in cli("get", "echo", "-A").splitlines()]
    assert [kubectl.namespace, "echo/a", "False", "Suspended"] in [row[:4] for row in everywhere]

    assert cli("get", "--output=name") == "echo.test.example.com/a\n"
    partly = cli.run("get", "echo/none", "echo/a", "--output=name")
    assert (partly.returncode, partly.stdout) == (1, "echo.test.example.com/a\n")
    assert '"none" not found' in partly.stderr
    missing = cli.run("get", "echo/none")
    assert missing.stdout == ""
    assert (missing.returncode, '"none" not found' in missing.stderr) == (1, True)
    elsewhere = cli.run("get", "echo/a", "--context=none")
    assert (elsewhere.returncode, "unknown context none" in elsewhere.stderr) == (1, True)


@contextmanager
def watching(
    cli: RunnerCli, tmp_path: Path, commands: Mapping[str, Sequence[str]]
) -> Iterator[dict[str, Path]]:
    """Run these commands with `--watch`; give the files of their output. Ctrl-C ends them."""
    logs = {name: tmp_path / name for name in commands}
    where = (f"--namespace={cli.namespace}", f"--kubeconfig={cli.kubeconfig}", "--watch")
    started = []
    for name, command in commands.items():
        with logs[name].open("w") as out:
            started.append(subprocess.Popen([OPERATOR_RUNNER, *command, *where], stdout=out))
    try:
        yield logs
    finally:
        for each in started:
            each.send_signal(signal.SIGINT)
        statuses = [each.wait(60) for each in started]
    assert set(statuses) == {130}


def lines_of(log: Path) -> list[str]:
    """Return the complete lines: the last one may still be written."""
    return [line for line in log.read_text().splitlines(keepends=True) if line.endswith("\n")]


def complete_lines(log: Path) -> list[Json]:
    """Return the documents of a stream of JSON."""
    return list(map(json.loads, lines_of(log)))


@pytest.mark.slow
def test_malformed_conditions_are_left_out(cli: RunnerCli, kubectl: Kubectl) -> None:
    """A condition whose type is not text does not end `get`, `tree` and `suspend`."""
    kubectl.apply(echo(sayThis="1"))
    conditions = [{"type": ["Running"]}, {"type": {}}, {"type": "Successful", "status": "True"}]
    patch = json.dumps({"status": {"conditions": conditions}})
    kubectl("patch", KIND, "a", "--subresource=status", "--type=merge", f"--patch={patch}")
    assert cells(cli("get", "echo"))[0][2] == "Succeeded"
    assert cells(cli("tree", "echo/a"))[0][1] == "ready"
    suspended = cli.run("suspend", "echo/a", "--timeout=1s")
    assert "no operator has written its conditions" in suspended.stderr
    requested = cli.run("reconcile", "echo/a", "--timeout=1s")
    assert "Traceback" not in requested.stderr


def test_resources_without_conditions_have_the_state_of_events_and_of_the_queue(
    cli: RunnerCli, kubectl: Kubectl, operator: Operator, project: Path
) -> None:
    """With `manageStatus: false`: the outcome, the cause and, from the operator, the next run."""
    with (project / "watches.yaml").open("a") as watches:
        watches.write("  manageStatus: false\n  reconcilePeriod: 1h\n")
    with (project / ROLE).open("a") as role:
        role.write(
            "- {name: Refuse, ansible.builtin.fail: {msg: not today}, when: say_this == 'no'}\n"
        )
    operator.start()
    kubectl.apply(echo(sayThis="1"), echo("b", sayThis="no"))
    work_dir = f"--work-dir={operator.scratch / 'work'}"

    def listed(*flags: str) -> dict[str, Json]:
        items = json.loads(cli("get", "echo", "--output=json", *flags))["items"]
        return {each["name"]: each for each in items}

    def states() -> dict[str, str]:
        return {name: each["state"] for name, each in listed().items()}

    expected = {"a": "Succeeded", "b": "Failed"}
    eventually(states, expected.__eq__, details=operator.log)

    def is_complete(found: dict[str, Json]) -> bool:
        """With what only the operator knows, and between two attempts of `b`."""
        good, bad = found["a"], found["b"]
        return (
            {name: each["state"] for name, each in found.items()} == expected
            and {"nextRun", "lastRun", "runID"} <= good.keys()
            and {"failingSince", "nextRun"} <= bad.keys()
            and "not today" in bad["message"]
        )

    eventually(partial(listed, work_dir), is_complete, details=operator.log)


def test_an_excluded_resource_has_the_reason(
    cli: RunnerCli, kubectl: Kubectl, operator: Operator, project: Path, tmp_path: Path
) -> None:
    """Without it, a resource that `when` or the labels exclude looks like one without operator."""
    when = "spec.sayThis != 'no'"
    watches = project / "watches.yaml"
    original = watches.read_text()
    watches.write_text(f'{original}  when: "{when}"\n')
    operator.start()
    kubectl.apply(echo(sayThis="yes"), echo("b", sayThis="no"))
    wait_for_text(kubectl, operator, "hello yes")
    where = f"--work-dir={operator.scratch / 'work'}"
    reason = f"reconciled only if `when` is true: {when}"

    def message(name: str) -> str:
        [item] = json.loads(cli("get", f"echo/{name}", where, "--output=json"))["items"]
        return str(item.get("message"))

    assert (message("a"), message("b")) == ("None", reason)
    assert cells(cli("get", where))[1][-1] == reason
    other = replace(cli, namespace="kube-public")
    for wanted in ((), ("echo",)):
        assert (
            "No resources found in namespace kube-public. Operators that answer watch only: "
            f"{cli.namespace}\n"
        ) in other.run("get", *wanted, where).stderr
    # Without an operator that answers.
    assert cells(cli("get", "echo/b"))[0][-1] == "no operator has written its conditions"
    with watching(cli, tmp_path, {"get": ("get", "echo/b", where)}) as logs:
        eventually(logs["get"].read_text, lambda text: reason in text)
        kubectl.merge(KIND, "b", {"spec": {"sayThis": "well"}})
        eventually(logs["get"].read_text, lambda text: "Succeeded" in text, details=operator.log)
    operator.terminate()
    watches.write_text(f"{original}  selector: {{matchLabels: {{said: 'yes'}}}}\n")
    operator.start()
    kubectl.apply(echo("c"))
    assert message("c") == "no watch selects its labels"


@pytest.mark.slow
def test_malformed_events_are_left_out(cli: RunnerCli, kubectl: Kubectl) -> None:
    """Such an Event of another writer does not end `get`, `runs` and `why`."""
    kubectl.apply(echo(sayThis="1"))
    annotations = {RUN_ANNOTATION: "abc", DURATION_ANNOTATION: "fast"}
    kubectl.apply(
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": "forged", "annotations": annotations},
            "involvedObject": {
                "apiVersion": "test.example.com/v1",
                "kind": "Echo",
                "name": "a",
                "namespace": kubectl.namespace,
            },
            "reportingComponent": CONTROLLER,
        }
    )
    assert cells(cli("get", "echo"))[0][2] == "Unhandled"
    listed = cli.run("runs", "echo/a")
    assert (listed.returncode, "No runs found" in listed.stderr) == (3, True)
    assert "No runs of Echo" in cli("why", "echo/a")


def test_a_watch_shows_the_cause_of_an_event_that_follows_the_status(
    cli: RunnerCli, kubectl: Kubectl, tmp_path: Path
) -> None:
    """The Event of a run is written after the status, without a further event of the resource."""
    kubectl.apply(echo(sayThis="1"))
    uid = (kubectl.get(KIND, "a") or {})["metadata"]["uid"]
    with watching(cli, tmp_path, {"get": ("get", "echo/a", "--output=json")}) as logs:
        eventually(logs["get"].read_text)
        kubectl.apply(
            {
                "apiVersion": "events.k8s.io/v1",
                "kind": "Event",
                "metadata": {
                    "name": "later",
                    "annotations": {RUN_ANNOTATION: "abc", CAUSE_ANNOTATION: "spec: created"},
                },
                "eventTime": "2026-01-01T00:00:00.000000Z",
                "type": "Normal",
                "reason": "Successful",
                "action": "Reconcile",
                "note": "ok=1 changed=1",
                "regarding": {
                    "apiVersion": "test.example.com/v1",
                    "kind": "Echo",
                    "name": "a",
                    "namespace": kubectl.namespace,
                    "uid": uid,
                },
                "reportingController": CONTROLLER,
                "reportingInstance": "test",
            }
        )
        eventually(logs["get"].read_text, lambda text: '"cause": "spec: created"' in text)


def test_events_are_read_with_the_permissions_of_the_user(
    kubectl: Kubectl, operator: Operator, tmp_path: Path
) -> None:
    """Those of one namespace are enough for `why`; without any, it does not claim that none are."""
    kubectl.apply(echo(sayThis="1"))
    operator.start()
    wait_for_text(kubectl, operator, "hello 1")
    kubectl("create", "serviceaccount", "user")
    user = RunnerCli(kubectl.kubeconfig("user", tmp_path), kubectl.namespace)
    denied = user.run("why", "echo/a")
    assert (denied.returncode, denied.stdout) == (1, "")
    assert 'cannot list resource "events"' in denied.stderr

    kubectl("create", "role", "user", "--verb=list", "--resource=events.events.k8s.io")
    account = f"--serviceaccount={kubectl.namespace}:user"
    kubectl("create", "rolebinding", "user", "--role=user", account)
    found = eventually(
        lambda: user.run("why", "echo/a"),
        lambda done: "start" in done.stdout,
        details=operator.log,
    )
    assert found.returncode == 0, found.stderr


def _twin(group: str, kind: str = "Twin") -> tuple[Json, Json]:
    """Return a CRD and a resource of it; the kind has the same name in every group."""
    schema = {
        "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    }
    plural = f"{kind.lower()}s"
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": kind, "plural": plural},
            "scope": "Namespaced",
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": schema,
                    "subresources": {"status": {}},
                }
            ],
        },
    }
    return crd, {"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": "a"}}


def test_kinds_of_one_name_are_shown_with_their_groups(cli: RunnerCli, kubectl: Kubectl) -> None:
    """A row says which one it is about, and a command that is printed acts on that one."""
    groups = ["one.example.com", "two.example.com"]
    twins = [_twin(group) for group in groups]
    names = [f"twins.{group}" for group in groups]
    try:
        kubectl.apply(*(crd for crd, _ in twins))
        kubectl.wait_for_kinds(*names)
        kubectl.apply(*(resource for _, resource in twins))
        rows = cells(cli("get", *names))
        assert [row[0] for row in rows] == [f"twin.{group}/a" for group in groups]
        cli("suspend", "twin.two.example.com/a", "--timeout=0s")
        hint = f"operator-runner resume twin.two.example.com/a -n {cli.namespace}"
        assert f"until `{hint}`" in cli("why", "twins.two.example.com/a")
        words = f"operator-runner get --kubeconfig={cli.kubeconfig} twin"
        shell = {"COMP_WORDS": words, "COMP_CWORD": "3"}
        done = subprocess.run(
            [OPERATOR_RUNNER],
            env=os.environ | shell | {"_OPERATOR_RUNNER_COMPLETE": "bash_complete"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.splitlines() == [f"plain,{name}" for name in names]
    finally:
        kubectl("delete", "crd", *names)


@pytest.mark.slow
def test_a_kind_of_two_groups_is_the_same_one_in_all_commands(
    cli: RunnerCli, kubectl: Kubectl, project: Path, tmp_path: Path
) -> None:
    """The first of the cluster, unless watches.yaml does not have it; its order has no effect."""
    groups = ["one.siblings.example.com", "two.siblings.example.com"]
    siblings = [_twin(group, "Sibling") for group in groups]
    names = [f"siblings.{group}" for group in groups]
    watches = project / "watches.yaml"
    hello = {"greeting": "hello"}
    second, first = (
        {"group": group, "version": "v1", "kind": "Sibling", "role": "echo", "vars": hello}
        for group in reversed(groups)
    )
    once = (
        *("run", "--once=sibling/a", f"--watches-file={watches}", f"--work-dir={tmp_path}/work"),
        f"--ansible-roles-path={project}/roles",
    )
    try:
        kubectl.apply(*(crd for crd, _ in siblings))
        kubectl.wait_for_kinds(*names)
        kubectl.apply(*(resource for _, resource in siblings))
        wanted = kubectl("get", "sibling", "a", "--output=name").strip()
        assert cli("get", "sibling", "--output=name").split() == [wanted]
        assert wanted == "sibling.one.siblings.example.com/a"

        watches.write_text(yaml.safe_dump([second, first]))
        for which in ("sibling/a", "sibling"):
            all_ = () if "/" in which else ("--all",)
            found = cli.run("diff", which, *all_, f"--project={project}", "--output=json")
            items = json.loads(found.stdout)["items"]
            shown = [each["resource"]["apiVersion"] for each in items]
            assert shown == [f"{groups[0]}/v1"], found.stderr
        cli(*once)
        written = kubectl.get("configmap", "a")
        assert written is not None
        assert written["metadata"]["ownerReferences"][0]["apiVersion"] == f"{groups[0]}/v1"

        watches.write_text(yaml.safe_dump([second]))
        found = cli.run("diff", "sibling/a", f"--project={project}", "--output=json")
        (item,) = json.loads(found.stdout)["items"]
        assert item["resource"]["apiVersion"] == f"{groups[1]}/v1"
        refused = cli.run("diff", wanted, f"--project={project}")
        assert refused.returncode != 0
        assert f"{wanted[:-2]}, which is not in " in refused.stderr
        assert "watches.yaml; it has sibling.two.siblings.example.com" in refused.stderr
    finally:
        kubectl("delete", "crd", *names)


def test_kubectl_runs_the_commands_as_a_plugin(cli: RunnerCli, kubectl: Kubectl) -> None:
    """It finds `kubectl-operator_runner` in PATH."""
    kubectl.apply(echo(sayThis="1"))
    done = subprocess.run(
        [
            *(kubectl.program, "operator-runner", "get", "echo"),
            *(f"--namespace={cli.namespace}", f"--kubeconfig={cli.kubeconfig}"),
        ],
        env=os.environ | {"PATH": f"{Path(OPERATOR_RUNNER).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert cells(done.stdout)[0][0] == "echo/a"


def test_tree_shows_the_objects_of_a_resource(
    cli: RunnerCli, kubectl: Kubectl, operator: Operator
) -> None:
    """The ConfigMap of the role, with the field manager that has written it last."""
    operator.start()
    kubectl.apply(echo(sayThis="1"))
    wait_for_text(kubectl, operator, "hello 1")
    kubectl("wait", "--for=condition=Successful", f"{KIND}/a", "--timeout=180s")
    cli("suspend", "echo/a", "--timeout=180s")
    # Times of managedFields are whole seconds: the next write has to be in a later one.
    written = (kubectl.get("configmap", "a") or {})["metadata"]["creationTimestamp"]
    eventually(lambda: datetime.now(UTC) - datetime.fromisoformat(written) > timedelta(seconds=1))
    kubectl.merge("configmap", "a", {"data": {"text": "edited"}})
    root, child = cli("tree", "echo/a").splitlines()[1:]
    assert root.startswith("echo.test.example.com/a ")
    assert child.split()[:4] == ["└─", "configmap/a", "-", "kubectl-patch"]
    found = json.loads(cli("tree", "echo/a", "-o", "json"))
    assert [each["kind"] for each in found["children"]] == ["ConfigMap"]
    assert found["children"][0]["lastWriter"] == "kubectl-patch"


def test_watches_print_new_trees_runs_and_times_of_next_runs(
    cli: RunnerCli, kubectl: Kubectl, operator: Operator, project: Path, tmp_path: Path
) -> None:
    """`tree --watch`, `why --watch`, and `get --watch` with the queue of an operator."""
    with (project / "watches.yaml").open("a") as watches:
        watches.write("  reconcilePeriod: 1h\n")
    kubectl.apply(echo(sayThis="1"))
    work_dir = operator.scratch / "work"
    work_dir.mkdir(exist_ok=True)
    commands = {
        "tree": ("tree", "echo/a"),
        "why": ("why", "echo/a"),
        "get": ("get", "echo/a", "-o", "wide", f"--work-dir={work_dir}"),
    }
    with watching(cli, tmp_path, commands) as logs:
        # Each has printed what was there before.
        eventually(logs["tree"].read_text, lambda text: "echo.test.example.com/a" in text)
        eventually(logs["why"].read_text, lambda text: "No runs of" in text)
        eventually(logs["get"].read_text, lambda text: "Unhandled" in text)
        operator.start()
        wait_for_text(kubectl, operator, "hello 1")
        eventually(logs["tree"].read_text, lambda text: "configmap/a" in text)
        eventually(logs["why"].read_text, lambda text: "start" in text)
        line = eventually(
            lambda: [each for each in lines_of(logs["get"]) if " in " in each],
            details=logs["get"].read_text,
        )[0]
        assert "operator at http" in line


def test_watches_print_a_stream_of_documents(
    cli: RunnerCli, kubectl: Kubectl, operator: Operator, tmp_path: Path
) -> None:
    """One for what was there before, and one for each change: lines of JSON, or YAML after ---."""
    operator.start()
    kubectl.apply(echo(sayThis="1"))
    wait_for_text(kubectl, operator, "hello 1")
    kubectl("wait", "--for=condition=Successful", f"{KIND}/a", "--timeout=180s")
    where = f"--work-dir={operator.scratch / 'work'}"
    commands = {
        "get": ("get", "echo/a", "--output=json", where),
        "tree": ("tree", "echo/a", "--output=yaml"),
        "why": ("why", "echo/a", "--output=json"),
        "runs": ("runs", "echo/a", "--output=yaml", where),
    }
    with watching(cli, tmp_path, commands) as logs:

        def documents(name: str) -> list[Json]:
            """Return the documents so far; the last one of YAML may be incomplete."""
            if commands[name][2].endswith("json"):
                return complete_lines(logs[name])
            text = logs[name].read_text()
            return [
                yaml.safe_load(each) for each in re.split(r"^---\n", text, flags=re.MULTILINE)[1:]
            ]

        for name in commands:
            eventually(partial(documents, name), details=operator.log)
        kubectl.merge(KIND, "a", {"spec": {"sayThis": "2"}})
        wait_for_text(kubectl, operator, "hello 2")
        cause = "spec: spec.sayThis"
        eventually(lambda: documents("get")[-1].get("cause") == cause, details=operator.log)
        eventually(lambda: documents("why")[-1].get("cause") == cause, details=operator.log)
        eventually(
            lambda: documents("runs")[-1],
            lambda run: (
                (run["outcome"], run["causes"][0].get("detail")) == ("succeeded", "spec.sayThis")
            ),
            details=operator.log,
        )
        assert [each["kind"] for each in documents("tree")[0]["children"]] == ["ConfigMap"]
    deleted = {
        "get": ("get", "echo/a", "--output=json"),
        "tree": ("tree", "echo/a", "--output=json"),
    }
    with watching(cli, tmp_path, deleted) as logs:
        for log in logs.values():
            eventually(log.read_text)
        kubectl("delete", KIND, "a")
        eventually(logs["get"].read_text, lambda text: '"Deleted"' in text)
        eventually(logs["tree"].read_text, lambda text: '"readiness": "deleted"' in text)
        # It may be created again, and is shown then.
        kubectl.apply(echo(sayThis="3"))
        eventually(
            lambda: complete_lines(logs["tree"])[-1],
            lambda tree: tree.get("readiness") == "ready" and tree.get("children"),
            details=operator.log,
        )
