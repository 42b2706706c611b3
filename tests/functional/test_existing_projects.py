"""Log lines that projects of ansible-operator rely on, and kinds of the same name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kubectl import Kubectl
from tests.support.operator import Operator
from tests.support.waiting import eventually

GROUPS = ("test.example.com", "other.example.com")
DONE = "Ansible-runner exited successfully"
RULE = "-" * 79


@pytest.fixture
def operator(control_plane: Path, kubectl: Kubectl, project: Path) -> Iterator[Operator]:
    """Give an operator for kinds of one name in two groups, with the whole output in its log."""
    other = project / "other.yaml"
    other.write_text((project / "crd.yaml").read_text().replace(*GROUPS))
    kubectl("apply", f"--filename={other}")
    kubectl.wait_for_kinds(f"echoes.{GROUPS[1]}")
    (project / "watches.yaml").write_text(
        "".join(
            f"- {{group: {group}, version: v1, kind: Echo, role: echo, vars: {{greeting: hi}}}}\n"
            for group in GROUPS
        )
    )
    scratch = project.parent / "operator"
    scratch.mkdir()
    environment = {"ANSIBLE_DEBUG_LOGS": "true"}
    made = Operator(project, control_plane, kubectl.namespace, scratch, environment)
    yield made
    made.kill()
    kubectl("delete", "--ignore-not-found", f"crd/echoes.{GROUPS[1]}")


def test_the_log_has_the_format_of_ansible_operator(kubectl: Kubectl, operator: Operator) -> None:
    """Two groups have a kind of one name and version; frames, recap and output are in the log.

    At level 2 so are the reads of roles, as pieces of a line that people search for.
    """
    operator.start("--zap-log-level=2")
    for number, group in enumerate(GROUPS):
        kubectl.apply(echo(group, f"e{number}", {}))
    eventually(lambda: operator.log().count(DONE), lambda count: count >= 2, details=operator.log)
    assert {kubectl.get("configmap", f"e{number}") is not None for number in (0, 1)} == {True}

    log = operator.log()
    for number, group in enumerate(GROUPS):
        gvk, where = f"{group}/v1, Kind=Echo", f"e{number}/{kubectl.namespace}"
        assert f"Ansible Task Status Event StdOut ({gvk}, {where}) -----\n" in log
        block = log.partition(f"Ansible Debug Result ({gvk}, {where}) -----\n")[2]
        assert re.search(r"PLAY RECAP \*+\nlocalhost +: ok=1 .* failed=0 ", block)
    frame = (
        r"\n\n-+ Ansible Task StdOut -+\n"
        r"\nTASK \[echo : Say what the resource says\] \*+\ntask path: \S+/main.yml:1\n\n" + RULE
    )
    assert len(re.findall(frame, log)) >= 2
    starts = operator.lines("[playbook task start]")
    assert starts[0]["EventData.Name"] == "echo : Say what the resource says"
    assert "\x1b[" not in log
    path = f"/api/v1/namespaces/{kubectl.namespace}/configmaps/e0"
    read = f'"Skipping cache lookup","resource":{{"IsResourceRequest":true,"Path":"{path}","Verb":'
    assert read in log


def test_a_verbosity_shows_the_output_itself(kubectl: Kubectl, operator: Operator) -> None:
    """With the annotation the log has ansible-playbook's output, not frames."""
    operator.start()
    verbosity = {"ansible.sdk.operatorframework.io/verbosity": "3"}
    kubectl.apply(echo(GROUPS[0], "e0", verbosity))
    eventually(lambda: operator.log().count(DONE), lambda count: count >= 1, details=operator.log)

    log = operator.log().partition(" Ansible Debug Result ")[0]
    assert "Ansible Task StdOut" not in log
    # Its header is the same in each run.
    assert "ansible-playbook [core" not in log
    assert "\nPLAYBOOK: " in log
    assert operator.lines("[playbook task start]") == []
    assert re.search(r"\nTASK \[echo : Say what the resource says\] \*+\n", log)
    assert re.search(r"\nchanged: \[localhost\] => ", log)


def echo(group: str, name: str, annotations: dict[str, str]) -> dict[str, object]:
    return {
        "apiVersion": f"{group}/v1",
        "kind": "Echo",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"sayThis": "it"},
    }
