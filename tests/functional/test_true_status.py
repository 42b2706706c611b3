"""`kubectl wait` returns when the objects match the edit before it, whatever the operator does."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import pytest

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
GO = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "go"}}


def waited(kubectl: Kubectl, name: str = "a", seconds: int = 3) -> bool:
    """Return whether `kubectl wait` for Successful has met the condition in this time."""
    done = kubectl.run(
        "wait",
        "--for=condition=Successful",
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
    """Return whether both conditions hold; if one does, the object must match the resource.

    Nobody else edits: the object cannot be ahead of the resource.
    """
    body = kubectl.get(KIND, name)
    assert body is not None
    found = [holds(body, type_) for type_ in ("Successful", "Ready")]
    if not any(found):
        return False
    assert text_of(kubectl, name) == f"hello {body['spec']['sayThis']}", body
    return all(found)


def test_wait_does_not_return_for_edits_in_any_state_of_the_operator(
    kubectl: Kubectl, operator: Operator, project: Path, pytestconfig: pytest.Config
) -> None:
    """Random edits, also to specs that fail, while the operator is stopped, killed, and too slow.

    `make true-status` has many edits; its option `--edits-seed` repeats a run.
    """
    role = project / ROLE
    role.write_text(FAIL + role.read_text())
    with (project / "watches.yaml").open("a") as watches:
        watches.write("  kstatus: true\n")
    chance = random.Random(pytestconfig.getoption("--edits-seed"))
    names = [f"r{number}" for number in range(6)]
    kubectl.apply(*(echo(name, sayThis="0") for name in names))
    operator.start("--max-runs=1")
    for number in range(pytestconfig.getoption("--edits")):
        spec = {"sayThis": str(number), "fail": chance.random() < 0.2 or None}
        kubectl.merge(KIND, chance.choice(names), {"spec": spec})
        if chance.random() < 0.1:
            operator.kill() if chance.random() < 0.5 else operator.terminate()
            kubectl.merge(KIND, chance.choice(names), {"spec": {"sayThis": f"{number} later"}})
            assert [is_applied(kubectl, name) for name in names] != [True] * len(names)
            operator.start(f"--max-runs={chance.choice((1, 1, 3))}", wait=False)
        for _ in range(chance.choice((1, 1, 1, 8))):
            for name in names:
                is_applied(kubectl, name)
    for name in names:
        kubectl.merge(KIND, name, {"spec": {"fail": None}})
        eventually(partial(is_applied, kubectl, name), details=operator.log)
