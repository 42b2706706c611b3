"""The CRD of `create api --field`, as a real API server enforces it."""

from __future__ import annotations

import json
import subprocess
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
LATER = (
    "level:string=low,enum=low,high",
    "tls.secretName:string!,pattern=^[a-z]+$",
    "listeners[].port:integer!,minimum=1,maximum=65535",
    "store.class.size:number=1,minimum=0.5",
)
API = "cache.schema.test/v1alpha1"
DEFAULTS = {
    "size": 3, "ratio": 0.5, "debug": False, "hosts": ["a", "b"], "limits": {"cpu": "1"},
    "level": "low", "store": {"class": {"size": 1}},
}  # fmt: skip


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project with two kinds, with and without required fields; one gets more later."""
    root = tmp_path_factory.mktemp("fields") / "cache-operator"
    init(root, "--domain=schema.test")
    create_api(root, "Checked", "--generate-role", *(f"--field={text}" for text in FIELDS))
    create_api(root, "Lenient", "--generate-role", "--field=size:integer=3")
    done = run(root, "create", "field", "Checked", *LATER)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "config/crd/bases/cache.schema.test_checkeds.yaml",
        "config/samples/cache_v1alpha1_checked.yaml",
        "roles/checked/meta/argument_specs.yml",
        *("", "Next: make install"),
    ]
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
    """Each wrong type, a value outside its limits, a missing and an unknown field."""
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
        ({"spec": {"owner": "a", "level": "mid"}}, 'spec.level: Unsupported value: "mid"'),
        ({"spec": {"owner": "a", "tls": {}}}, "spec.tls.secretName: Required value"),
        ({"spec": {"owner": "a", "tls": {"secretName": "A1"}}}, "spec.tls.secretName: Invalid"),
        ({"spec": {"owner": "a", "listeners": [{}]}}, "spec.listeners[0].port: Required value"),
        ({"spec": {"owner": "a", "listeners": [{"port": 0}]}}, "greater than or equal to 1"),
        ({"spec": {"owner": "a", "listeners": [{"port": 65536}]}}, "less than or equal to 65535"),
        ({"spec": {"owner": "a", "store": {"class": {"size": 0.4}}}}, "store.class.size: Invalid"),
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
    columns = ["OWNER", "SIZE", "IMAGE", "RATIO", "DEBUG", "LEVEL", "READY", "FAILED"]
    assert head == ["NAME", *columns, "AGE"]
    assert row[:-1] == ["checked-sample", "example", "3", "example", "0.5", "false", "low"]


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
    done = run(project, "create", "field", "Checked", "size:string", "level:string=high")
    assert done.returncode == 1
    assert "field size: exists with type integer; choose another name, or edit" in done.stderr
    assert "field level: exists with default low" in done.stderr
    done = run(project, *api, "--field=ansibleHost:string")
    assert "choose another name, such as otherAnsibleHost" in done.stderr
    assert done.returncode == 1
    assert not (project / "roles/other").exists()


def test_defaults_that_look_like_templates_are_texts(tmp_path: Path) -> None:
    """`validate` accepts them, the CRD has them as they are, and the argument spec marks them."""
    root = tmp_path / "alerts"
    init(root, "--domain=schema.test")
    texts = {"summary": "{{ $labels.pod }} is down", "lines": ["{% a", "b {# c", "plain"]}
    lines = json.dumps(texts["lines"])
    fields = (f"--field=summary:string={texts['summary']}", f"--field=lines:array:string={lines}")
    create_api(root, "Alert", "--generate-role", *fields)
    done = run(root, "validate")
    assert done.returncode == 0, done.stderr
    crd = yaml.safe_load((root / "config/crd/bases/cache.schema.test_alerts.yaml").read_text())
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert {name: each["default"] for name, each in schema["properties"].items()} == texts
    specs = (root / "roles/alert/meta/argument_specs.yml").read_text()
    assert specs.count("!unsafe") == 3
