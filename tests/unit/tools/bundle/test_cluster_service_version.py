"""The ClusterServiceVersion of a bundle."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from operator_runner.core.errors import ConfigError
from operator_runner.core.model import GVK, Conversion, RunContent, Watch
from operator_runner.tools.bundle.cluster_service_version import (
    BundleOptions,
    cluster_service_version,
)
from operator_runner.tools.bundle.manifests import Manifests, permissions
from tests.support.manifests import BASE, SAMPLE, Json, rendered

OPTIONS = BundleOptions("1.2.3")
CONVERTED = Watch(
    GVK("example.com", "v1", "Web"),
    RunContent(role=Path("/roles/web")),
    conversions=(Conversion("v1alpha1", {}, {}),),
)


def made(objects: Manifests, *watches: Watch, options: BundleOptions = OPTIONS) -> Json:
    return cluster_service_version(objects, watches, options, permissions(objects))


def with_base(change: dict[str, Any], annotations: dict[str, str] | None = None) -> Manifests:
    base = copy.deepcopy(BASE)
    base["spec"] |= change
    base["metadata"]["annotations"] |= annotations or {}
    return rendered(base, without="ClusterServiceVersion")


def test_the_author_begins_and_the_rest_is_filled_in() -> None:
    """Name, version, examples, Deployments and permissions are added; the author's fields stay."""
    found = made(rendered())
    assert found["metadata"]["name"] == "web-operator.v1.2.3"
    assert found["metadata"]["annotations"]["capabilities"] == "Basic Install"
    (example,) = json.loads(found["metadata"]["annotations"]["alm-examples"])
    assert example == SAMPLE | {"metadata": {"name": "sample"}}
    spec = found["spec"]
    assert (spec["version"], spec["displayName"]) == ("1.2.3", "Web")
    (deployment,) = spec["install"]["spec"]["deployments"]
    assert (deployment["name"], deployment["label"]) == (
        "web-operator-manager",
        {"app": "web-operator"},
    )
    assert spec["install"]["spec"]["clusterPermissions"]
    assert spec["install"]["spec"]["permissions"]
    assert "webhookdefinitions" not in spec
    assert "icon" not in spec


def test_an_example_of_the_author_is_kept() -> None:
    """The base may have examples of versions that config/samples no longer has."""
    old = {"apiVersion": "example.com/v1beta1", "kind": "Web", "metadata": {"name": "old"}}
    found = made(with_base({}, {"alm-examples": json.dumps([old])}))
    examples = json.loads(found["metadata"]["annotations"]["alm-examples"])
    assert [item["apiVersion"] for item in examples] == ["example.com/v1", "example.com/v1beta1"]


def test_images_are_listed_for_mirrors() -> None:
    """The operator's own, and those that variables name to its roles."""
    found = made(rendered().with_image("example.com/web-operator:v1"))
    assert found["spec"]["relatedImages"] == [
        {"name": "manager", "image": "example.com/web-operator:v1"},
        {"name": "web-server", "image": "nginx:1.28.0"},
    ]
    assert found["metadata"]["annotations"]["containerImage"] == "example.com/web-operator:v1"


def test_conversions_become_a_webhook() -> None:
    """Conversions of watches.yaml are served on 9443 at /convert; OLM creates the Service."""
    (webhook,) = made(rendered(), CONVERTED)["spec"]["webhookdefinitions"]
    assert webhook == {
        "type": "ConversionWebhook", "admissionReviewVersions": ["v1"], "containerPort": 443,
        "conversionCRDs": ["webs.example.com"], "deploymentName": "web-operator-manager",
        "generateName": "cwebs.kb.io", "sideEffects": "None", "targetPort": 9443,
        "webhookPath": "/convert",
    }  # fmt: skip


def test_conversions_of_a_kind_without_definition_are_refused() -> None:
    """The CRD belongs into the same bundle."""
    with pytest.raises(ConfigError, match=r"CustomResourceDefinition Web: .* declares conversions"):
        made(rendered(without="CustomResourceDefinition"), CONVERTED)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"replaces": "web-operator.v1.2.3"}, r"spec\.replaces: a version cannot replace itself"),
        ({"installModes": []}, r"spec\.installModes: support at least one"),
        (
            {"installModes": [{"type": "OwnNamespace", "supported": True}]},
            r"spec\.installModes: with a conversion webhook",
        ),
    ],
)
def test_values_that_olm_rejects_name_the_field(change: dict[str, Any], message: str) -> None:
    """The error has the folder, the object and the field."""
    with pytest.raises(ConfigError, match=rf"config/manifests: ClusterServiceVersion .*{message}"):
        made(with_base(change), CONVERTED)


def test_images_that_are_not_pinned() -> None:
    """With --use-image-digests each image without a digest is reported."""
    with pytest.raises(ConfigError, match=r"relatedImages: .*controller:latest, nginx:1\.28\.0"):
        made(rendered(), options=BundleOptions("1.2.3", use_image_digests=True))


def test_one_base_is_needed() -> None:
    """Without it the name of the package is unknown."""
    with pytest.raises(ConfigError, match="expected one ClusterServiceVersion, found: none"):
        made(rendered(without="ClusterServiceVersion"))


def test_the_base_names_the_package() -> None:
    """A name without a version is refused."""
    base = BASE | {"metadata": {"name": "web-operator"}}
    with pytest.raises(ConfigError, match=r"metadata\.name: expected PACKAGE\.vVERSION"):
        made(rendered(base, without="ClusterServiceVersion"))


def test_an_image_needs_its_container() -> None:
    """`--image` is not silently without effect."""
    with pytest.raises(ConfigError, match="needs a Deployment with a container named manager"):
        rendered(without="Deployment").with_image("x")


def test_something_must_be_installed() -> None:
    """A bundle needs a Deployment."""
    with pytest.raises(ConfigError, match=r"spec\.install: the manifests contain no Deployment"):
        made(rendered(without="Deployment"))
