"""What operator_sdk.util.k8s_status promises to roles, on a real API server."""

from __future__ import annotations

import importlib
import json
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args

from operator_runner.devcluster import Cluster
from tests.support.kubectl import Json, Kubectl
from tests.support.operator import REPOSITORY

API_VERSION = "test.example.com/v1"
COLLECTIONS = REPOSITORY / "operator_runner" / "collections"
STATUS_MODULE = "ansible_collections.operator_sdk.util.plugins.modules.k8s_status"

Run = Callable[..., Json]


def definition(kind: str, *, subresources: Json) -> Json:
    """Return a CRD whose status takes anything."""
    plural = f"{kind.lower()}s"
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"status": status}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": subresources,
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.test.example.com"},
        "spec": {
            "group": "test.example.com",
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "shortNames": [kind.lower()[:3]]},
            "versions": [version],
        },
    }


@pytest.fixture(scope="module")
def kinds(control_plane_cluster: Cluster) -> None:
    """Install the CRDs."""
    kubectl = Kubectl(control_plane_cluster.bin / "kubectl", "default")
    kubectl.apply(
        definition("Widget", subresources={"status": {}}),
        definition("Plain", subresources={}),
    )
    kubectl.wait_for_kinds("widgets.test.example.com", "plains.test.example.com")


@pytest.fixture
def widget(kubectl: Kubectl, kinds: None) -> str:
    """Make a resource of each kind without a status; return their name."""
    del kinds
    one = {"apiVersion": API_VERSION, "metadata": {"name": "one"}}
    kubectl.apply({**one, "kind": "Widget"}, {**one, "kind": "Plain"})
    return "one"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import the module as Ansible does."""
    monkeypatch.syspath_prepend(str(COLLECTIONS))
    return importlib.import_module(STATUS_MODULE)


@pytest.fixture
def run(
    module: ModuleType,
    widget: str,
    control_plane: Path,
    namespace: str,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """Run the module with these options, as a task does; return what it reports."""

    def call(**options: Any) -> Json:
        given = {
            "kubeconfig": str(control_plane),
            "api_version": API_VERSION,
            "kind": "Widget",
            "name": widget,
            "namespace": namespace,
            **options,
        }
        with patch_module_args(given), pytest.raises(SystemExit):
            module.main()
        reported: Json = json.loads(capsys.readouterr().out)
        return reported

    return call


@pytest.fixture
def status(kubectl: Kubectl, widget: str) -> Callable[[], Json]:
    """Read the status as the API server has it."""

    def read() -> Json:
        body = kubectl.get("widgets.test.example.com", widget)
        assert body is not None
        found: Json = body.get("status", {})
        return found

    return read


def condition(type_: str = "Ready", status: Any = "True", **more: Any) -> Json:
    return {"type": type_, "status": status, "reason": "Because", "message": "so", **more}


def test_fields_are_set_and_others_kept(run: Run, status: Callable[[], Json]) -> None:
    """Fields are merged into the status, deeply."""
    run(status={"size": 3, "at": {"zone": "a"}})
    done = run(status={"at": {"rack": 7}})
    assert done["changed"]
    assert status() == {"size": 3, "at": {"zone": "a", "rack": 7}}
    assert done["result"]["status"] == status()


def test_null_removes_a_field(run: Run, status: Callable[[], Json]) -> None:
    """A null takes a field away, once."""
    run(status={"size": 3, "zone": "a"})
    assert run(status={"size": None})["changed"]
    assert status() == {"zone": "a"}
    assert not run(status={"size": None})["changed"]


def test_nothing_is_written_where_nothing_differs(run: Run, kubectl: Kubectl) -> None:
    """Repeating a task reports no change and leaves the resource version alone."""
    options = {"status": {"size": 3}, "conditions": [condition(observedGeneration=1)]}
    assert run(**options)["changed"]
    before = kubectl.get("widgets.test.example.com", "one")
    assert not run(**options)["changed"]
    assert not run(**options, replace=True)["changed"]
    assert kubectl.get("widgets.test.example.com", "one") == before


def test_conditions_are_merged_by_type(run: Run, status: Callable[[], Json]) -> None:
    """A condition takes the place of the one of its type; those of others stay as they are."""
    run(conditions=[condition("Running"), condition("Ready", "False")])
    others = status()["conditions"][0]
    run(conditions=[condition("Ready", "True", observedGeneration=4)])
    assert status()["conditions"][0] == others
    assert [c["type"] for c in status()["conditions"]] == ["Running", "Ready"]
    assert status()["conditions"][1]["status"] == "True"
    assert status()["conditions"][1]["observedGeneration"] == 4


def test_conditions_inside_status_are_merged_too(run: Run, status: Callable[[], Json]) -> None:
    """It makes no difference which of the two options carries the conditions."""
    run(conditions=[condition("Running")])
    run(status={"size": 1, "conditions": [condition("Ready")]})
    assert [c["type"] for c in status()["conditions"]] == ["Running", "Ready"]


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("malformed", [{"conditions": "text"}, {"conditions": ["text"]}])
def test_a_malformed_status_is_replaced(
    run: Run,
    kubectl: Kubectl,
    status: Callable[[], Json],
    widget: str,
    malformed: Json,
    *,
    replace: bool,
) -> None:
    """Its schema may permit anything, and conditions that are not maps have no type to merge by."""
    patch = json.dumps({"status": malformed})
    where = ("widgets.test.example.com", widget, "--subresource=status")
    kubectl("patch", *where, "--type=merge", f"--patch={patch}")
    run(conditions=[{"type": "Ready", "status": "True"}], replace=replace)
    assert [each["type"] for each in status()["conditions"]] == ["Ready"]


def test_conditions_of_a_malformed_type_are_replaced(
    run: Run, kubectl: Kubectl, status: Callable[[], Json], widget: str
) -> None:
    """With `replace`, which looks up the former conditions by type."""
    patch = json.dumps({"status": {"conditions": [{"type": ["Ready"]}, {"type": {}}]}})
    where = ("widgets.test.example.com", widget, "--subresource=status")
    kubectl("patch", *where, "--type=merge", f"--patch={patch}")
    run(conditions=[condition("Ready")], replace=True)
    assert [each["type"] for each in status()["conditions"]] == ["Ready"]


def test_transition_time_moves_with_the_status_only(run: Run, status: Callable[[], Json]) -> None:
    """A new message keeps lastTransitionTime, a new status renews it."""
    long_ago = "2001-01-01T00:00:00Z"
    run(conditions=[condition(lastTransitionTime=long_ago)])
    run(conditions=[condition(message="other")])
    assert status()["conditions"][0]["message"] == "other"
    assert status()["conditions"][0]["lastTransitionTime"] == long_ago
    run(conditions=[condition(status="False")])
    assert status()["conditions"][0]["lastTransitionTime"] > long_ago


def test_replace_sets_the_whole_status(run: Run, status: Callable[[], Json]) -> None:
    """With replace, or its older name force, fields that are not given are removed."""
    long_ago = "2001-01-01T00:00:00Z"
    run(status={"size": 3}, conditions=[condition("Old"), condition(lastTransitionTime=long_ago)])
    assert run(status={"zone": "a"}, conditions=[condition()], force=True)["changed"]
    assert status() == {"zone": "a", "conditions": [condition(lastTransitionTime=long_ago)]}


@pytest.mark.parametrize(("replace_lists", "left"), [(False, ["a", "b"]), (True, ["a"])])
def test_lists_are_replaced_only_on_request(
    run: Run, status: Callable[[], Json], *, replace_lists: bool, left: list[str]
) -> None:
    """A list that contains the given items is not changed, unless it must be equal."""
    run(status={"nodes": ["a", "b"]})
    run(status={"nodes": ["a"]}, replace_lists=replace_lists)
    assert status()["nodes"] == left


def test_check_mode_writes_nothing(run: Run, status: Callable[[], Json]) -> None:
    """In check mode the change is reported, not made."""
    assert run(status={"size": 3}, _ansible_check_mode=True)["changed"]
    assert status() == {}


def test_a_boolean_status_is_the_text(run: Run, status: Callable[[], Json]) -> None:
    """An unquoted True of YAML is taken for "True"."""
    run(conditions=[condition(status=True)])
    assert status()["conditions"][0]["status"] == "True"


@pytest.mark.parametrize(
    ("conditions", "complaint", "at"),
    [
        (
            [condition(), condition(reason="two words")],
            "Condition 'reason' must be a single, CamelCase word",
            "conditions[1].reason: 'two words'",
        ),
        *(
            (
                [condition(**{field: "26/03/2021 2:00PM"})],
                f"'{field}' must be an RFC3339 compliant datetime string",
                f"conditions[0].{field}: '26/03/2021 2:00PM'",
            )
            for field in ("lastTransitionTime", "lastHeartbeatTime")
        ),
        (
            [condition(observedGeneration=-1)],
            "Condition 'observedGeneration' must be a number from 0 up",
            "conditions[0].observedGeneration",
        ),
    ],
)
def test_faulty_conditions_are_refused(
    run: Run, conditions: list[Json], complaint: str, at: str
) -> None:
    """The error has the reason, the condition and the field."""
    done = run(conditions=conditions)
    assert done["failed"]
    assert done["msg"] == "The specified conditions failed to validate"
    assert done["error"] == complaint
    assert done["at"] == at


@pytest.mark.parametrize(
    ("conditions", "complaint"),
    [
        ([condition(), {"status": "True"}], "missing required arguments: type found in conditions"),
        ([{"type": "Ready"}], "missing required arguments: status found in conditions"),
        (
            [condition(status="yes")],
            "value of status must be one of: True, False, Unknown, got: yes found in conditions",
        ),
        ([condition(colour="red")], "conditions.colour"),
        ([condition(observedGeneration="new")], "argument 'observedGeneration' is of type str"),
    ],
)
def test_invalid_condition_fields_are_rejected(
    run: Run, conditions: list[Json], complaint: str
) -> None:
    """Missing, unknown and mistyped fields are named in Ansible's own words."""
    done = run(conditions=conditions)
    assert done["failed"]
    assert complaint in done["msg"]


def test_all_fields_of_a_condition_are_written(run: Run, status: Callable[[], Json]) -> None:
    """Times with a space, as `date --rfc-3339` prints them, are converted for the API."""
    given = condition(
        observedGeneration="3",
        lastHeartbeatTime="2021-03-26 14:00:01+00:00",
        lastTransitionTime="2021-03-26T14:00:00.5Z",
    )
    run(conditions=[given])
    written = {"observedGeneration": 3, "lastHeartbeatTime": "2021-03-26T14:00:01+00:00"}
    assert status()["conditions"] == [given | written]


def test_a_new_time_alone_is_not_a_change(run: Run, status: Callable[[], Json]) -> None:
    """A role that gives the time of each run as lastTransitionTime writes once."""
    run(conditions=[condition(lastTransitionTime="2001-01-01T00:00:00Z")])
    assert not run(conditions=[condition(lastTransitionTime="2002-01-01T00:00:00Z")])["changed"]
    assert status()["conditions"][0]["lastTransitionTime"] == "2001-01-01T00:00:00Z"


def test_conditions_inside_status_are_not_checked(run: Run, status: Callable[[], Json]) -> None:
    """What existing roles write there goes through, fields of their own and all."""
    odd = {"type": "Odd", "reason": "two words", "colour": "red"}
    run(status={"conditions": [odd]})
    assert odd.items() <= status()["conditions"][0].items()
    run(status={"conditions": None})
    assert status() == {}


def test_an_empty_request_is_not_a_change(run: Run, status: Callable[[], Json]) -> None:
    """Without status and conditions nothing is written; with replace everything goes."""
    run(status={"size": 3}, conditions=[condition()])
    assert not run()["changed"]
    assert not run(status={}, conditions=[])["changed"]
    assert run(replace=True)["changed"]
    assert status() == {}


@pytest.mark.parametrize("name", ["Widget", "widgets", "widget", "wid"])
def test_any_name_of_the_kind_will_do(run: Run, name: str) -> None:
    """Kind, plural, singular and short names are all found."""
    assert run(kind=name, status={"size": 1})["result"]["status"]["size"] == 1


def test_conditions_twice_are_refused(run: Run) -> None:
    """Conditions in both options are an error."""
    done = run(status={"conditions": [condition()]}, conditions=[condition()])
    assert done["msg"] == (
        "You cannot specify conditions in both the 'status' and 'conditions' parameters"
    )


def test_an_unknown_kind_is_named_in_the_error(run: Run) -> None:
    """A kind that the API server does not have is named."""
    assert run(kind="Gadget", status={"size": 1})["msg"] == (
        "Failed to find exact match for test.example.com/v1.Gadget by "
        "[kind, name, singularName, shortNames]"
    )


def test_a_missing_resource_is_named_in_the_error(run: Run) -> None:
    """The message of the API server names the missing resource."""
    done = run(name="two", status={"size": 1})
    assert done["msg"] == "Failed to retrieve requested object"
    assert done["error"]["status"] == 404
    assert done["error"]["reason"] == "Not Found"
    assert done["error"]["message"] == 'widgets.test.example.com "two" not found'


def test_a_kind_without_status_subresource_is_an_error(run: Run) -> None:
    """The error names the missing part of the CRD."""
    done = run(kind="Plain", status={"size": 1})
    message = "Resource test.example.com/v1.Plain does not support the status subresource"
    assert done["msg"] == message
    assert "CustomResourceDefinition" in done["error"]


def test_a_status_against_the_schema_is_rejected(run: Run, kubectl: Kubectl) -> None:
    """A status that the schema forbids is an error with the API server's message."""
    kubectl("apply", f"--filename={REPOSITORY / 'crds'}")
    kubectl.wait_for_kinds("nginxoperators.operator.example.com")
    nginx = {"apiVersion": "operator.example.com/v1alpha2", "kind": "NginxOperator"}
    kubectl.apply({**nginx, "metadata": {"name": "web"}})
    refused = run(
        api_version=nginx["apiVersion"],
        kind="NginxOperator",
        name="web",
        conditions=[{"type": "Ready", "status": "True"}],
    )
    assert refused["msg"].startswith("Failed to replace status: ")
    assert refused["error"]["status"] == 422
    assert "status.conditions[0].reason: Required value" in refused["msg"]


def test_writers_at_the_same_time_lose_nothing(
    run: Run,
    module: ModuleType,
    status: Callable[[], Json],
    control_plane: Path,
    namespace: str,
) -> None:
    """Six writers of one list of conditions: each condition is there in the end."""
    run(conditions=[condition("First")])
    types = [f"Type{n}" for n in range(6)]
    barrier = threading.Barrier(len(types))

    def write(type_: str) -> None:
        client = module.get_api_client(kubeconfig=str(control_plane))
        resource = module.find_with_status(client, API_VERSION, "Widget")
        barrier.wait()
        params = {
            "name": "one",
            "namespace": namespace,
            "status": None,
            "conditions": [condition(type_)],
            "replace": False,
            "replace_lists": False,
        }
        module.write_status(resource, params, dry_run=False)

    threads = [threading.Thread(target=write, args=(type_,)) for type_ in types]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {c["type"] for c in status()["conditions"]} == {"First", *types}
