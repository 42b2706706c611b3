"""`kubectl wait` returns when the objects match the edit before it, whatever the operator does."""

from __future__ import annotations

from pathlib import Path

from tests.functional.test_operator import (
    KIND,
    ROLE,
    WAIT,
    echo,
    text_of,
    wait_for_text,
)
from tests.support.kubectl import Kubectl
from tests.support.operator import Operator

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
