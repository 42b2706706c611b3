"""`kubectl wait` returns when the objects match the edit before it, whatever the operator does."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from threading import Event
from time import sleep

import pytest
from kubernetes.client import CustomObjectsApi
from kubernetes.config import new_client_from_config
from kubernetes.watch import Watch

from tests.functional.test_operator import (
    KIND,
    ROLE,
    WAIT,
    echo,
    text_of,
    wait_for_text,
)
from tests.support.kubectl import Json, Kubectl
from tests.support.operator import Operator
from tests.support.waiting import eventually

FAIL = """
- name: Fail on request
  ansible.builtin.fail:
    msg: as it was asked for
  when: fail | default(false)
"""
LEADER = (
    "--leader-elect",
    "--leader-election-id=echo",
    "--leader-elect-lease-duration=20s",
    "--leader-elect-renew-deadline=15s",
)
GO = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "go"}}


def waited(
    kubectl: Kubectl, name: str = "a", seconds: int = 3, *, condition: str = "Successful"
) -> bool:
    """Return whether `kubectl wait` has met the condition in this time."""
    done = kubectl.run(
        "wait",
        f"--for=condition={condition}",
        f"--timeout={seconds}s",
        KIND,
        f"--field-selector=metadata.name={name}",
    )
    assert done.returncode == 0 or "timed out waiting for the condition" in done.stderr, done.stderr
    return done.returncode == 0


def say(kubectl: Kubectl, text: str, name: str = "a") -> None:
    """Edit the resource."""
    kubectl.merge(KIND, name, {"spec": {"sayThis": text}})


def test_wait_does_not_return_for_an_edit_that_no_operator_has_read(
    kubectl: Kubectl, operator: Operator
) -> None:
    """An edit while the operator is stopped is not Successful before an operator has applied it."""
    operator.start()
    kubectl.apply(echo(sayThis="one"))
    assert waited(kubectl, seconds=180)
    operator.terminate()
    say(kubectl, "two")
    assert not waited(kubectl)
    operator.start()
    assert waited(kubectl, seconds=180)
    assert text_of(kubectl) == "hello two"


def test_wait_does_not_return_for_an_edit_in_the_queue_or_during_a_run(
    kubectl: Kubectl, operator: Operator, project: Path
) -> None:
    """A full queue and a run of an older generation do not fulfil the condition."""
    role = project / ROLE
    role.write_text(
        role.read_text() + WAIT.replace("register: go", "register: go\n  when: wait is defined")
    )
    operator.start("--max-runs=1")
    kubectl.apply(echo(sayThis="one"))
    wait_for_text(kubectl, operator, "hello one")
    assert waited(kubectl, seconds=180)
    kubectl.apply(echo("b", sayThis="one", wait=True))
    wait_for_text(kubectl, operator, "hello one", "b")
    say(kubectl, "two")
    say(kubectl, "two", "b")
    assert not waited(kubectl)
    assert not waited(kubectl, "b")
    kubectl.apply(GO)
    for name in ("a", "b"):
        assert waited(kubectl, name, seconds=180)
        assert text_of(kubectl, name) == "hello two"


def holds(body: Json, type_: str) -> bool:
    """Return whether `kubectl wait --for=condition=TYPE` returns for this resource."""
    status = body.get("status", {})
    found = next((c for c in status.get("conditions", ()) if c["type"] == type_), None)
    if found is None or found["status"] != "True":
        return False
    observed = found.get("observedGeneration", status.get("observedGeneration"))
    return observed is None or observed >= body["metadata"]["generation"]


def is_applied(kubectl: Kubectl, name: str) -> bool:
    """Return whether both conditions hold."""
    body = kubectl.get(KIND, name)
    assert body is not None
    return holds(body, "Successful") and holds(body, "Ready")


def number_of(kubectl: Kubectl, name: str) -> int:
    """Return the number of the edit that the object of a resource matches, -1 without one."""
    text = text_of(kubectl, name)
    return int(text.removeprefix("hello ")) if text else -1


class Witness:
    """Reads what pipelines read while the resources are edited, each edit with a higher number.

    A condition that holds for an edit whose number the object has not reached fails the test.
    """

    def __init__(self, kubectl: Kubectl, kubeconfig: Path, names: list[str]) -> None:
        """Take the resources; `work` starts it."""
        self._kubectl, self._names = kubectl, names
        self._api = CustomObjectsApi(new_client_from_config(str(kubeconfig)))  # type: ignore[no-untyped-call]
        self._resources = ("test.example.com", "v1", kubectl.namespace, "echoes")
        self._ended = Event()
        self._parts: list[Future[None]] = []
        self.held: Counter[str] = Counter()
        self.waits: Counter[str] = Counter()

    @contextmanager
    def work(self) -> Iterator[None]:
        """Watch and wait as long as the block; what was wrong is raised at its end."""
        with ThreadPoolExecutor(2) as threads:
            self._parts = [threads.submit(self._watch), threads.submit(self._wait)]
            try:
                yield
            finally:
                self._ended.set()
        self._check()

    def _check(self) -> None:
        for part in self._parts:
            if part.done():
                part.result()

    def edit(self, name: str, number: int, **spec: bool | None) -> None:
        """Edit a resource by one request, if nothing was wrong until now."""
        self._check()
        body = {"spec": {"sayThis": str(number), **spec}}
        self._api.patch_namespaced_custom_object(*self._resources, name, body)

    def _watch(self) -> None:
        """See each state of each resource, as Argo CD and Flux do."""
        stream = Watch()  # type: ignore[no-untyped-call]
        listed = partial(self._api.list_namespaced_custom_object, *self._resources)
        while not self._ended.is_set():
            since = {"resource_version": stream.resource_version} if stream.resource_version else {}
            events = stream.stream(listed, timeout_seconds=5, **since)  # type: ignore[no-untyped-call]
            for event in events:
                body = event["object"]
                found = [type_ for type_ in ("Successful", "Ready") if holds(body, type_)]
                if found:
                    name = body["metadata"]["name"]
                    assert number_of(self._kubectl, name) >= int(body["spec"]["sayThis"]), body
                    self.held.update(found)

    def _wait(self) -> None:
        """Wait for resources by kubectl, one after the other."""
        chance = random.Random(1)
        while not self._ended.is_set():
            name, type_ = chance.choice(self._names), chance.choice(("Successful", "Ready"))
            body = self._kubectl.get(KIND, name)
            assert body is not None
            if waited(self._kubectl, name, condition=type_):
                number = int(body["spec"]["sayThis"])
                assert number_of(self._kubectl, name) >= number, (type_, body)
                self.waits[type_] += 1


@pytest.mark.parametrize(
    ("operators", "flags"),
    [
        pytest.param(1, (), id="one operator"),
        pytest.param(2, LEADER, id="two replicas"),
        pytest.param(2, (*LEADER, "--shards=auto"), id="shards"),
    ],
)
def test_wait_does_not_return_for_edits_in_any_state_of_the_operators(  # noqa: PLR0917 fixtures
    control_plane: Path,
    kubectl: Kubectl,
    make_operator: Callable[[str], Operator],
    project: Path,
    pytestconfig: pytest.Config,
    operators: int,
    flags: tuple[str, ...],
) -> None:
    """Random edits, also to specs that fail, while operators are stopped, killed, and too slow.

    `make true-status` has many edits; its option `--edits-seed` repeats a run.
    """
    role = project / ROLE
    role.write_text(FAIL + role.read_text())
    with (project / "watches.yaml").open("a") as watches:
        watches.write("  kstatus: true\n")
    chance = random.Random(pytestconfig.getoption("--edits-seed"))
    names = [f"r{number}" for number in range(6)]
    kubectl.apply(*(echo(name, sayThis="0") for name in names))
    replicas = [make_operator(f"operator-{number}") for number in range(operators)]
    witness = Witness(kubectl, control_plane, names)
    numbers = count(1)

    def start(operator: Operator) -> None:
        namespace = f"--leader-election-namespace={kubectl.namespace}"
        operator.start(namespace, *flags, f"--max-runs={chance.choice((1, 1, 3))}", wait=False)

    for operator in replicas:
        start(operator)
    with witness.work():
        for _ in range(pytestconfig.getoption("--edits") // 3):
            name = chance.choice(names)
            witness.edit(name, next(numbers), fail=chance.random() < 0.2 or None)
            if chance.random() < 0.02:
                replaced = chance.choice(replicas)
                replaced.kill() if chance.random() < 0.5 else replaced.terminate()
                for edited in names:
                    witness.edit(edited, next(numbers))
                start(replaced)
            if chance.random() < 0.3:
                sleep(chance.random())
            if chance.random() < 0.05:
                witness.edit(name, next(numbers), fail=None)
                eventually(partial(is_applied, kubectl, name), details=replicas[0].log)
        for name in names:
            witness.edit(name, next(numbers), fail=None)
            eventually(partial(is_applied, kubectl, name), details=replicas[0].log)
        eventually(lambda: len(witness.waits), lambda types: types == 2)
