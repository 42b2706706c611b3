"""The CRD of `create api --field`, as a real API server enforces it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.kubectl import Json, Kubectl
from tests.support.scaffold import create_api, init, run
from tests.support.waiting import eventually

FIELDS = (
    "owner:string!",
    "size:integer=3",
    "image:string",
    "ratio:number=0.5",
    "debug:boolean=false",
    "hosts:array:string=[a, b]",
    "ports:array:integer",
    "limits:object={cpu: '1'}",
)
API = "cache.schema.test/v1alpha1"
DEFAULTS = {
    "size": 3, "ratio": 0.5, "debug": False, "hosts": ["a", "b"], "limits": {"cpu": "1"},
}  # fmt: skip


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project with two kinds, with and without required fields."""
    root = tmp_path_factory.mktemp("fields") / "cache-operator"
    init(root, "--domain=schema.test")
    create_api(root, "Checked", "--generate-role", *(f"--field={text}" for text in FIELDS))
    create_api(root, "Lenient", "--generate-role", "--field=size:integer=3")
    return root


@pytest.fixture
def crds(project: Path, kubectl: Kubectl) -> Iterator[Path]:
    """Install the CRDs, give the project, and delete the CRDs."""
    for crd in (project / "config/crd/bases").iterdir():
        kubectl("apply", f"--filename={crd}")
    names = [f"{plural}.cache.schema.test" for plural in ("checkeds", "lenients")]
    kubectl.wait_for_kinds(*names)
    yield project
    kubectl("delete", "crd", *names)


def apply(kubectl: Kubectl, kind: str, **body: Json) -> subprocess.CompletedProcess[str]:
    resource = {"apiVersion": API, "kind": kind, "metadata": {"name": "a"}, **body}
    return kubectl.run("apply", "--filename=-", input_=yaml.safe_dump(resource))


def test_the_api_server_sets_defaults(crds: Path, kubectl: Kubectl) -> None:
    """In a resource with the required fields alone, and in one without a spec."""
    del crds
    assert apply(kubectl, "Checked", spec={"owner": "me"}).returncode == 0
    checked = kubectl.get("checkeds.cache.schema.test", "a")
    assert checked is not None
    assert checked["spec"] == {"owner": "me"} | DEFAULTS
    assert apply(kubectl, "Lenient").returncode == 0
    lenient = kubectl.get("lenients.cache.schema.test", "a")
    assert lenient is not None
    assert lenient["spec"] == {"size": 3}


def test_the_api_server_rejects_objects_against_the_schema(crds: Path, kubectl: Kubectl) -> None:
    """Each wrong type, a missing field, and a field that does not exist."""
    del crds
    refused: list[tuple[Json, str]] = [
        ({}, "spec: Required value"),
        ({"spec": {}}, "spec.owner: Required value"),
        ({"spec": {"owner": 1}}, "spec.owner: Invalid value"),
        ({"spec": {"owner": "a", "size": "1"}}, "spec.size: Invalid value"),
        ({"spec": {"owner": "a", "size": 1.5}}, "spec.size: Invalid value"),
        ({"spec": {"owner": "a", "ratio": "1"}}, "spec.ratio: Invalid value"),
        ({"spec": {"owner": "a", "debug": "no"}}, "spec.debug: Invalid value"),
        ({"spec": {"owner": "a", "hosts": "a"}}, "spec.hosts: Invalid value"),
        ({"spec": {"owner": "a", "ports": ["a"]}}, "spec.ports[0]: Invalid value"),
        ({"spec": {"owner": "a", "limits": []}}, "spec.limits: Invalid value"),
        ({"spec": {"owner": "a", "sise": 1}}, 'unknown field "spec.sise"'),
    ]
    for body, problem in refused:
        done = apply(kubectl, "Checked", **body)
        assert done.returncode != 0, body
        assert problem in done.stderr


def test_the_sample_is_accepted_and_its_fields_are_columns(crds: Path, kubectl: Kubectl) -> None:
    """`kubectl get` shows fields with single values, the success and the age."""
    kubectl("apply", f"--filename={crds / 'config/samples/cache_v1alpha1_checked.yaml'}")
    table = eventually(
        lambda: kubectl("get", "checkeds.cache.schema.test", "checked-sample"),
        lambda table: "OWNER" in table,
    )
    head, row = (line.split() for line in table.splitlines())
    assert head == ["NAME", "OWNER", "SIZE", "IMAGE", "RATIO", "DEBUG", "READY", "FAILED", "AGE"]
    assert row[:-1] == ["checked-sample", "example", "3", "example", "0.5", "false"]


def test_a_fresh_project_with_fields_passes_its_rbac_check(project: Path) -> None:
    """Fields need no permissions."""
    done = run(project, "rbac", "--check=config/rbac", "--check=config/manager")
    assert done.returncode == 0, done.stdout


def test_invalid_fields_write_nothing(project: Path) -> None:
    """The hint is in the message, and a name that Ansible acts on is found."""
    api = ("create", "api", "--group=cache", "--version=v1", "--kind=Other", "--generate-role")
    done = run(project, *api, "--field=size:int", "--field=owner")
    assert done.returncode == 1
    assert "write size:integer" in done.stderr
    assert "write owner:string" in done.stderr
    done = run(project, *api, "--field=ansibleHost:string")
    assert "choose another name, such as otherAnsibleHost" in done.stderr
    assert done.returncode == 1
    assert not (project / "roles/other").exists()


def test_defaults_that_look_like_templates_are_texts(tmp_path: Path) -> None:
    """`validate` accepts them, and the role has them as they are."""
    root = tmp_path / "alerts"
    init(root, "--domain=schema.test")
    texts = {"summary": "{{ $labels.pod }} is down", "lines": ["{% a", "b {# c", "plain"]}
    lines = json.dumps(texts["lines"])
    fields = (f"--field=summary:string={texts['summary']}", f"--field=lines:array:string={lines}")
    create_api(root, "Alert", "--generate-role", *fields)
    done = run(root, "validate")
    assert done.returncode == 0, done.stderr
    out = tmp_path / "out"
    tasks = f"- copy: {{content: '{{{{ [summary, lines] | to_json }}}}', dest: {out}}}\n"
    (root / "roles/alert/tasks/main.yml").write_text(tasks)
    play = tmp_path / "play.yml"
    play.write_text("- {hosts: localhost, gather_facts: false, roles: [alert]}\n")
    program = Path(sys.executable).with_name("ansible-playbook")
    environment = {**os.environ, "ANSIBLE_ROLES_PATH": str(root / "roles")}
    subprocess.run([program, play], env=environment, check=True)
    assert json.loads(out.read_text()) == list(texts.values())
