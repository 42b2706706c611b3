"""The files of a bundle."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from operator_runner.core.errors import ConfigError
from operator_runner.tools.bundle.bundle import bundle, dockerfile, write_bundle
from operator_runner.tools.bundle.cluster_service_version import BundleOptions, precedence
from operator_runner.tools.bundle.manifests import Manifests
from tests.support.manifests import rendered

OPTIONS = BundleOptions("1.2.3", ("alpha", "stable"), "stable")
TESTS = {
    "apiVersion": "scorecard.operatorframework.io/v1alpha3",
    "kind": "Configuration",
    "metadata": {"name": "config"},
}


def test_files_and_their_names() -> None:
    """Names are those of operator-sdk; samples, and objects that OLM creates, are left out."""
    assert list(bundle(rendered(TESTS), (), OPTIONS).files) == [
        "manifests/example.com_webs.yaml",
        "manifests/metrics-reader_rbac.authorization.k8s.io_v1_clusterrole.yaml",
        "manifests/web-operator-manager_v1_service.yaml",
        "manifests/web-operator.clusterserviceversion.yaml",
        "metadata/annotations.yaml",
        "tests/scorecard/config.yaml",
    ]


def test_no_manifest_names_a_namespace() -> None:
    """The Subscription decides about it."""
    service = bundle(rendered(), (), OPTIONS).files[
        "manifests/web-operator-manager_v1_service.yaml"
    ]
    assert yaml.safe_load(service)["metadata"] == {"name": "web-operator-manager"}


@pytest.mark.parametrize("more", [(), (TESTS,)])
def test_labels_and_annotations_are_equal(more: tuple[dict[str, object], ...]) -> None:
    """The image has the labels of metadata/annotations.yaml and copies the folders they name."""
    made = bundle(rendered(*more), (), OPTIONS)
    text = dockerfile(made.labels, "bundle")
    labels = dict(re.findall(r"^LABEL (\S+)=(\S+)$", text, re.MULTILINE))
    assert labels == yaml.safe_load(made.files["metadata/annotations.yaml"])["annotations"]
    prefix = "operators.operatorframework.io.bundle"
    assert labels[f"{prefix}.package.v1"] == "web-operator"
    assert labels[f"{prefix}.channels.v1"] == "alpha,stable"
    assert labels[f"{prefix}.channel.default.v1"] == "stable"
    copied = re.findall(r"^COPY bundle/(\S+) /\1$", text, re.MULTILINE)
    assert copied == ["manifests/", "metadata/", "tests/scorecard/"][: 2 + len(more)]
    assert {path.rpartition("/")[0] + "/" for path in made.files} == set(copied)


def test_the_same_project_gives_the_same_bytes() -> None:
    """The order in which kustomize lists objects does not matter."""
    objects = list(rendered(TESTS).objects)
    random.shuffle(objects)
    shuffled = bundle(Manifests(tuple(objects), "config/manifests"), (), OPTIONS)
    assert shuffled == bundle(rendered(TESTS), (), OPTIONS)


def test_a_kind_that_olm_does_not_install_is_refused() -> None:
    """A Certificate would make the InstallPlan fail, long after the bundle was published."""
    issuer = {"apiVersion": "cert-manager.io/v1", "kind": "Issuer", "metadata": {"name": "own"}}
    with pytest.raises(ConfigError, match="config/manifests: Issuer own: kind: OLM does not"):
        bundle(rendered(issuer), (), OPTIONS)


def test_an_earlier_bundle_is_replaced(tmp_path: Path) -> None:
    """Stale manifests are removed; the author's other files are kept."""
    files = dict(bundle(rendered(TESTS), (), OPTIONS).files)
    write_bundle(tmp_path, files | {"manifests/gone_v1_service.yaml": "x\n"})
    dependencies = tmp_path / "metadata" / "dependencies.yaml"
    dependencies.write_text("dependencies: []\n")
    write_bundle(tmp_path, files)
    found = {str(f.relative_to(tmp_path)): f.read_text() for f in tmp_path.rglob("*.yaml")}
    assert found == files | {"metadata/dependencies.yaml": "dependencies: []\n"}


def test_other_manifests_are_not_replaced(tmp_path: Path) -> None:
    """A folder without a bundle keeps its files."""
    (tmp_path / "manifests").mkdir()
    mine = tmp_path / "manifests" / "deployment.yaml"
    mine.write_text("kind: Deployment\n")
    with pytest.raises(ConfigError, match="manifests without a ClusterServiceVersion"):
        write_bundle(tmp_path, bundle(rendered(), (), OPTIONS).files)
    assert list(tmp_path.rglob("*.yaml")) == [mine]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("v1",), "--version: invalid semantic version 'v1'"),
        (("1.0",), "--version"),
        (("1.0.0", ()), "--channels: name at least one"),
        (("1.0.0", ("Alpha",)), "--channels: invalid channel 'Alpha'"),
        (
            ("1.0.0", ("alpha",), "beta"),
            "--default-channel: invalid channel 'beta': expected one of alpha",
        ),
    ],
)
def test_wrong_flags_are_refused(arguments: tuple[Any, ...], message: str) -> None:
    """The flag is named."""
    with pytest.raises(ConfigError, match=message):
        BundleOptions(*arguments)


def test_versions_are_ordered_by_semver() -> None:
    """Numbers are compared as numbers, and a pre-release is before its release."""
    versions = ["0.0.2-alpha.2", "0.0.2-alpha.10", "0.0.2-rc.1", "0.0.2", "0.0.10", "0.1.0"]
    assert sorted(random.sample(versions, len(versions)), key=precedence) == versions
