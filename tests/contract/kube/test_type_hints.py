"""Failures that types are the cause of name the setting: over messages of the real API server."""

from __future__ import annotations

import json

import pytest

from operator_runner.ansible.templating.hints import FOR_NUMBERS, FOR_TEXTS, with_type_hint
from operator_runner.core.model import Json
from operator_runner.devcluster import Cluster
from tests.support.kubectl import Kubectl

SERVER_SIDE = ("apply", "--server-side", "--validate=false", "--filename=-")
CREATE = ("create", "--validate=false", "--filename=-")
LABELS = {"app": "web"}
WEB = {"containers": [{"name": "web", "image": "web"}]}
WIDGETS: Json = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.types.example.com"},
    "spec": {
        "group": "types.example.com",
        "scope": "Namespaced",
        "names": {"kind": "Widget", "plural": "widgets", "singular": "widget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {
                                    "size": {"type": "integer"},
                                    "share": {"type": "number"},
                                    "on": {"type": "boolean"},
                                    "name": {"type": "string"},
                                },
                            }
                        },
                    }
                },
            }
        ],
    },
}


def of(kind: str, api_version: str = "v1", **fields: Json) -> Json:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "tried"}, **fields}


def deployment(**spec: object) -> Json:
    template = {"metadata": {"labels": LABELS}, "spec": WEB}
    full = {"selector": {"matchLabels": LABELS}, "template": template, **spec}
    return of("Deployment", "apps/v1", spec=full)


def widget(**spec: object) -> Json:
    return of("Widget", "types.example.com/v1", spec=spec)


TEXT_FOR_NUMBER = (
    deployment(replicas="3"),
    deployment(paused="true"),
    of("Service", spec={"ports": [{"port": "80"}], "selector": LABELS}),
    of("CronJob", "batch/v1", spec={"schedule": "* * * * *", "suspend": "no"}),
    widget(size="3"),
    widget(share="1.5"),
    widget(on="True"),
)
NUMBER_FOR_TEXT = (
    of("ConfigMap", data={"size": 3}),
    of("ConfigMap", data={"on": True}),
    of("ConfigMap", data={"share": 1.5}),
    {**of("ConfigMap"), "metadata": {"name": "tried", "labels": {"size": 3}}},
    of("Secret", stringData={"size": 3}),
    widget(name=3),
    widget(name=False),
)


@pytest.fixture(scope="module", autouse=True)
def widgets(control_plane_cluster: Cluster) -> None:
    """Have a kind with a schema."""
    kubectl = Kubectl(control_plane_cluster.bin / "kubectl", "default")
    kubectl("apply", "--filename=-", input_=json.dumps(WIDGETS))
    kubectl.wait_for_kinds("widgets.types.example.com")


@pytest.mark.parametrize("command", [CREATE, SERVER_SIDE], ids=["create", "server-side"])
def test_a_refusal_of_types_names_the_setting(kubectl: Kubectl, command: tuple[str, ...]) -> None:
    """Text for a number and a number for text, of built-in and of custom kinds."""
    for hint, bodies in ((FOR_NUMBERS, TEXT_FOR_NUMBER), (FOR_TEXTS, NUMBER_FOR_TEXT)):
        for body in bodies:
            refused = kubectl.run(*command, input_=json.dumps(body))
            assert refused.returncode != 0, body
            assert with_type_hint(refused.stderr).endswith(hint), refused.stderr
            quoted = json.dumps({"message": refused.stderr})
            assert with_type_hint(quoted).endswith(hint), quoted


def test_other_errors_are_unchanged(kubectl: Kubectl) -> None:
    """A name, a value or a reference that is wrong is not a matter of types."""
    for body in (
        {**of("ConfigMap"), "metadata": {"name": "Not A Name"}},
        of("Service", spec={"ports": [{"port": 99999}]}),
        of("NoSuchKind"),
    ):
        refused = kubectl.run(*CREATE, input_=json.dumps(body))
        assert refused.returncode != 0
        assert with_type_hint(refused.stderr) == refused.stderr
