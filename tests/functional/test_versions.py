"""One kind in two versions, each with a role of its own: a resource has one role, not both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from operator_runner.devcluster import Cluster
from tests.support.kubectl import Kubectl
from tests.support.operator import Operator
from tests.support.runner_cli import RunnerCli
from tests.support.waiting import eventually

GROUP = "versions.example.com"
CRD = f"crd/echoes.{GROUP}"


@pytest.fixture
def operator(
    control_plane_cluster: Cluster, control_plane: Path, kubectl: Kubectl, project: Path
) -> Iterator[Operator]:
    """Return an operator whose greeting contains the version of the resource."""
    crd = yaml.safe_load((project / "crd.yaml").read_text().replace("test.example.com", GROUP))
    (version,) = crd["spec"]["versions"]
    crd["spec"]["versions"] = [version, version | {"name": "v2", "storage": False}]
    kubectl("apply", "--filename=-", input_=yaml.safe_dump(crd))
    kubectl.wait_for_kinds(f"echoes.{GROUP}")
    (project / "watches.yaml").write_text(
        "".join(
            f"- {{group: {GROUP}, version: {name}, kind: Echo, role: echo,"
            f" vars: {{greeting: {name} says}}}}\n"
            for name in ("v1", "v2")
        )
    )
    scratch = project.parent / "operator"
    scratch.mkdir()
    made = Operator(project, control_plane, kubectl.namespace, scratch, {})
    yield made
    made.kill()
    control_plane_cluster.exec(["kubectl", "delete", CRD])


def test_the_version_that_was_written_last_has_the_resource(
    kubectl: Kubectl, operator: Operator
) -> None:
    """An edit is one run, of the role of the version in which it was made."""
    operator.start()
    edits = [("v1", "a"), ("v2", "b"), ("v2", "c"), ("v1", "d")]
    for runs, (version, word) in enumerate(edits, start=1):
        resource = {
            "apiVersion": f"{GROUP}/{version}",
            "kind": "Echo",
            "metadata": {"name": "e"},
            "spec": {"sayThis": word},
        }
        kubectl.apply(resource)
        seen = eventually(
            lambda: (len(operator.lines("Reconciled")), kubectl.get("configmap", "e")),
            lambda seen, runs=runs: seen[0] >= runs,  # type: ignore[misc]
            details=operator.log,
        )
        assert seen[1] is not None
        assert (seen[0], seen[1]["data"]["text"]) == (runs, f"{version} says {word}")
    # Counted after the line of its log.
    eventually(lambda: operator.metric("reconciles_total") == len(edits))


def test_a_preview_is_that_of_the_version_that_was_written_last(
    kubectl: Kubectl, operator: Operator, cli: RunnerCli
) -> None:
    """The kind alone is enough to name the resource."""
    for version, name in (("v1", "first"), ("v2", "second")):
        resource = {"apiVersion": f"{GROUP}/{version}", "kind": "Echo", "spec": {"sayThis": "a"}}
        kubectl.apply({**resource, "metadata": {"name": name}})
        done = cli.run("diff", f"echo/{name}", f"--project={operator.project}")
        assert done.returncode == 1, done.stderr
        assert f"+  text: {version} says a" in done.stdout


def test_a_deleted_resource_is_cleaned_up_by_one_role(kubectl: Kubectl, operator: Operator) -> None:
    """That of the version that was written last, although both have the same finalizer."""
    watches = operator.project / "watches.yaml"
    finalizer = "finalizer: {name: versions.example.com/end, vars: {last: true}}"
    watches.write_text(watches.read_text().replace("vars:", f"{finalizer}, vars:"))
    operator.start()
    kubectl.apply(
        {
            "apiVersion": f"{GROUP}/v2",
            "kind": "Echo",
            "metadata": {"name": "e"},
            "spec": {"sayThis": "a"},
        }
    )
    eventually(lambda: operator.lines("Reconciled"), details=operator.log)
    kubectl("delete", f"echoes.{GROUP}", "e")
    eventually(lambda: operator.lines("Finalized"), details=operator.log)
    operator.terminate()
    # The first run and the clean-up.
    assert len({line["run_id"] for line in operator.lines("[playbook task start]")}) == 2
