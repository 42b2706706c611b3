"""Order of deletion, and messages before and after it."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from operator_runner.cli import main
from operator_runner.core.errors import ConfigError
from operator_runner.core.model import GVK, ObjectRef
from operator_runner.tools.undeploy import (
    Definition,
    Resource,
    deletion_lines,
    finalizer_commands,
    plan_for,
    remaining_lines,
)
from operator_runner.tools.yaml_io import read_objects

CRD = "webs.shop.io"
CLAIM = ObjectRef(GVK("", "v1", "PersistentVolumeClaim"), "shop", "data")
POD = ObjectRef(GVK("", "v1", "Pod"), "shop", "web-1")


def ref(kind: str, name: str, namespace: str = "") -> ObjectRef:
    return ObjectRef(GVK("", "v1", kind), namespace, name)


def web(name: str, namespace: str = "shop", **more: object) -> Resource:
    return Resource(ObjectRef(GVK("shop.io", "v1", "Web"), namespace, name), name, **more)  # type: ignore[arg-type]


def test_objects_are_deleted_in_reverse_order() -> None:
    """The rest goes backwards; CRDs, Deployments and namespaces have turns of their own."""
    objects = [
        ref("Namespace", "op"),
        ref("CustomResourceDefinition", CRD),
        ref("ServiceAccount", "a", "op"),
        ref("ClusterRole", "r"),
        ref("Service", "s", "op"),
        ref("Deployment", "m", "op"),
    ]
    plan = plan_for(objects)
    assert plan.crds == (objects[1],)
    assert plan.workloads == (objects[5],)
    assert plan.rest == (objects[4], objects[3], objects[2])
    assert plan.namespaces == (objects[0],)
    assert plan.made == (ref("Secret", "s-certificate", "op"),)


def test_the_deletion_summary_lists_what_resources_own() -> None:
    """Each resource with its objects, and the sum."""
    definition = Definition(CRD, (web("a", owned=(POD, CLAIM)), web("b", "other")))
    assert list(deletion_lines([definition])) == [
        f"CRD {CRD} will be deleted with these resources and their dependents:",
        "  Web shop/a: Pod shop/web-1, PersistentVolumeClaim shop/data",
        "  Web other/b: no objects",
        "Total: 2 resources.",
    ]


def test_a_crd_without_resources_is_listed_alone() -> None:
    """A CRD without resources goes alone."""
    assert list(deletion_lines([Definition(CRD, ())])) == [
        f"CRD {CRD} will be deleted; it has no resources."
    ]


def test_long_lists_are_cut() -> None:
    """The total includes all of them."""
    lines = list(deletion_lines([Definition(CRD, tuple(web(f"w{n}") for n in range(30)))]))
    assert len(lines) == 1 + 20 + 1 + 1
    assert lines[-2:] == ["  and 10 more", "Total: 30 resources."]


def test_resources_that_cannot_be_deleted_are_named() -> None:
    """Resources without an operator are named, with the command that removes their finalizers."""
    definition = Definition(CRD, (web("a", has_finalizers=True), web("b")))
    lines = list(remaining_lines([definition]))
    assert lines[0] == f"Kept: CRD {CRD} and 2 resources."
    command = f"kubectl patch {CRD} a --namespace=shop --type=merge"
    assert lines[2].strip().startswith(command)
    assert list(finalizer_commands([definition])) == [lines[2]]


def test_nothing_is_left_behind() -> None:
    """Then nothing is reported."""
    assert list(remaining_lines([Definition(CRD, ())])) == []


def test_manifests_are_read_from_all_files_of_a_directory(tmp_path: Path) -> None:
    """Objects of all files and lists; other documents are skipped."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.yaml").write_text(
        "- op: add\n---\napiVersion: v1\nkind: A\nmetadata: {name: a}\n"
    )
    listed = (
        "apiVersion: v1\nkind: List\n"
        "items: [{apiVersion: v1, kind: B, metadata: {name: b}}, {kind: Kustomization}, 1]\n"
    )
    (tmp_path / "sub" / "b.yml").write_text(listed)
    (tmp_path / "c.txt").write_text("apiVersion: v1\nkind: C\n")
    assert [body["kind"] for body in read_objects([tmp_path])] == ["A", "B"]


def test_an_invalid_manifest_is_named(tmp_path: Path) -> None:
    """The file is named."""
    bad = tmp_path / "bad.yaml"
    bad.write_text("{")
    with pytest.raises(ConfigError, match=r"bad\.yaml: invalid YAML"):
        read_objects([bad])
    with pytest.raises(ConfigError, match=r"none\.yaml: no such file or directory"):
        read_objects([tmp_path / "none.yaml"])


def test_a_directory_without_manifests_is_an_error(tmp_path: Path) -> None:
    """Otherwise a wrong PATH would look like a success; no request is sent to a cluster."""
    (tmp_path / "watches.yaml").write_text("- kind: Web\n")
    done = CliRunner().invoke(main, ["undeploy", str(tmp_path)])
    assert done.exit_code == 1
    assert done.stderr.startswith(f"Error: {tmp_path}: no manifests found; name their file")


@pytest.mark.parametrize(
    ("kustomize", "problem"),
    [("no-such-kustomize", "--kustomize"), ("false", "failed")],
)
def test_a_kustomize_that_does_not_work(tmp_path: Path, kustomize: str, problem: str) -> None:
    """No request is sent to a cluster; the error names the program."""
    (tmp_path / "kustomization.yaml").write_text("resources: []\n")
    done = CliRunner().invoke(main, ["undeploy", str(tmp_path), f"--kustomize={kustomize}"])
    assert done.exit_code == 1
    assert kustomize in done.stderr
    assert problem in done.stderr
