"""The README of a new project, whose kind has fields: its commands on a real control plane."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from operator_runner.devcluster import Cluster
from tests.support.author_shell import author_shell
from tests.support.doc_commands import blocks, section
from tests.support.kubectl import Kubectl
from tests.support.scaffold import create_api, init
from tests.support.session import Session
from tests.support.waiting import eventually

FIELDS = (
    "siteTitle:string!",
    "size:integer=3",
    "ratio:number",
    "debug:boolean=false",
    "tags:array:string=[a, b]",
    "limits:object={maxCpu: 1}",
)
VALUES = {
    "site_title": "example",
    "size": 3,
    "ratio": 1.5,
    "debug": False,
    "tags": ["a", "b"],
    "limits": {"max_cpu": 1},
}
ROLE = """\
---
- name: Write the variables
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata:
        name: "{{ ansible_operator_meta.name }}"
        namespace: "{{ ansible_operator_meta.namespace }}"
      data:
        values: "{{ {'site_title': site_title, 'size': size, 'ratio': ratio, 'debug': debug,
                     'tags': tags, 'limits': limits} | to_json }}"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project with one kind, which has a field of each type."""
    root = tmp_path / "fields-operator"
    init(root, "--domain=readme.test")
    create_api(root, "Site", "--generate-role", *(f"--field={text}" for text in FIELDS))
    (root / "roles/site/tasks/main.yml").write_text(ROLE)
    return root


@pytest.fixture
def shell(project: Path, control_plane_cluster: Cluster, tmp_path: Path) -> Iterator[Session]:
    """Give a shell in the project."""
    with author_shell(project, control_plane_cluster, tmp_path) as shell:
        yield shell


def test_commands_in_the_readme_of_a_new_project_work(
    shell: Session, project: Path, kubectl: Kubectl
) -> None:
    """Its commands run the role, whose variables have the types of the fields.

    After a recording, `make manifests` writes permissions that pass the check.
    """
    page = (project / "README.md").read_text()
    start, use = (block.text for block in blocks(section(page, "Development")))
    install, run = start.splitlines()
    shell.run(install)
    kubectl.wait_for_kinds("sites.cache.readme.test")
    try:
        log = shell.go_on(run)
        shell.run(use)
        data = eventually(
            lambda: shell.attempt("kubectl get configmap site-sample -o jsonpath={.data.values}"),
            lambda answer: answer[0] == 0,
            details=log.read_text,
        )
        assert json.loads(data[1]) == VALUES
        shell.run("kubectl wait --for=condition=Successful --timeout=180s sites/site-sample")
        shell.end_background()
        record, write = blocks(section(page, "Permissions"))[0].text.splitlines()
        log = shell.go_on(record)
        shell.run("kubectl delete configmap site-sample")
        eventually(
            lambda: shell.attempt("kubectl get configmap site-sample")[0],
            lambda status: status == 0,
            details=log.read_text,
        )
        shell.end_background()
        assert "The granted rules are the required ones." in shell.run(write)
    finally:
        shell.end_background()
        shell.run("make uninstall ARGS=--yes")
    assert kubectl.get("crd", "sites.cache.readme.test") is None


@pytest.mark.slow
def test_the_checks_of_a_new_project_pass(shell: Session, project: Path) -> None:
    """Each command of the table succeeds on a fresh project with fields; `make test` is another."""
    table = section((project / "README.md").read_text(), "Checks")
    commands = [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")]
    assert commands == [
        "make validate",
        "make lint",
        "make dry-run",
        "make rbac-check",
        "make test-roles",
        "make test",
    ]
    for command in commands[:-1]:
        shell.run(command, seconds=540)
    shell.run("touch roles/site/tasks/more.yml && echo 'key: : value' > roles/site/tasks/more.yml")
    status, output = shell.attempt("make lint")
    assert status != 0
    assert "roles/site/tasks/more.yml" in output
