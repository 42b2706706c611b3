"""Catalogs, and folders for OperatorHub, from stored bundles."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
import yaml

from operator_runner.core.errors import ConfigError
from operator_runner.tools.bundle.bundle import bundle, dockerfile, write_bundle
from operator_runner.tools.bundle.catalog import (
    StoredBundle,
    catalog,
    read_bundle,
    read_bundles,
    write_operatorhub,
)
from operator_runner.tools.bundle.cluster_service_version import BundleOptions
from tests.support.manifests import BASE, Json, rendered


def written(root: Path, version: str, *channels: str, **spec: object) -> Path:
    base = BASE | {"spec": BASE["spec"] | spec}
    made = bundle(
        rendered(base, without="ClusterServiceVersion"), (), BundleOptions(version, channels)
    )
    write_bundle(root / version, made.files)
    return root / version


@pytest.fixture
def bundles(tmp_path: Path) -> tuple[StoredBundle, ...]:
    """Give two versions, the newer one in two channels."""
    newer = written(tmp_path, "0.0.10", "alpha", "stable", replaces="web-operator.v0.0.9")
    return read_bundles([newer, written(tmp_path, "0.0.9", "alpha")])


def documents(text: str, schema: str) -> list[Json]:
    return [item for item in yaml.safe_load_all(text) if item["schema"] == schema]


def test_versions_follow_each_other_in_each_channel(bundles: tuple[StoredBundle, ...]) -> None:
    """Each channel has its own bundles, oldest first, and what each replaces."""
    text = catalog(bundles, default_channel="alpha")
    (package,) = documents(text, "olm.package")
    assert (package["name"], package["defaultChannel"]) == ("web-operator", "alpha")
    channels = {item["name"]: item["entries"] for item in documents(text, "olm.channel")}
    newer = {"name": "web-operator.v0.0.10", "replaces": "web-operator.v0.0.9"}
    assert channels == {"alpha": [{"name": "web-operator.v0.0.9"}, newer], "stable": [newer]}


def test_manifests_are_in_the_catalog(bundles: tuple[StoredBundle, ...]) -> None:
    """Without an image of the bundle, nothing has to be unpacked."""
    first = documents(catalog(bundles, default_channel="alpha"), "olm.bundle")[0]
    properties: dict[str, list[Json]] = {}
    for item in first["properties"]:
        properties.setdefault(item["type"], []).append(item["value"])
    assert properties["olm.package"] == [{"packageName": "web-operator", "version": "0.0.9"}]
    assert properties["olm.gvk"] == [{"group": "example.com", "kind": "Web", "version": "v1"}]
    inline = [json.loads(base64.b64decode(e["data"])) for e in properties["olm.bundle.object"]]
    assert inline == list(bundles[0].manifests)
    assert inline[0]["kind"] == "ClusterServiceVersion"
    assert first["image"] == ""


def test_bundle_images_are_listed_for_mirroring(bundles: tuple[StoredBundle, ...]) -> None:
    """With an image the catalog has the displayed fields, and the image must be mirrored too."""
    text = catalog(bundles, default_channel="alpha", image="example.com/bundle:v{version}")
    first = documents(text, "olm.bundle")[0]
    kinds = {item["type"] for item in first["properties"]}
    assert "olm.bundle.object" not in kinds
    assert "olm.csv.metadata" in kinds
    assert first["image"] == "example.com/bundle:v0.0.9"
    assert {"name": "", "image": "example.com/bundle:v0.0.9"} in first["relatedImages"]


def test_the_default_channel_is_not_guessed(bundles: tuple[StoredBundle, ...]) -> None:
    """Several channels without a default one are an error."""
    with pytest.raises(
        ConfigError, match="--default-channel: invalid value '': expected one of alpha, stable"
    ):
        catalog(bundles)
    assert documents(catalog(bundles[:1]), "olm.package")[0]["defaultChannel"] == "alpha"


def test_dependencies_become_requirements(tmp_path: Path) -> None:
    """metadata/dependencies.yaml, which the author writes, reaches the resolver."""
    folder = written(tmp_path, "0.0.1", "alpha")
    needed = {"type": "olm.package", "value": {"packageName": "cert", "version": ">1.0.0"}}
    text = yaml.safe_dump({"dependencies": [needed]})
    (folder / "metadata" / "dependencies.yaml").write_text(text)
    (made,) = documents(catalog([read_bundle(folder)]), "olm.bundle")
    value = {"packageName": "cert", "versionRange": ">1.0.0"}
    assert {"type": "olm.package.required", "value": value} in made["properties"]


def test_a_folder_without_a_bundle_is_an_error(tmp_path: Path) -> None:
    """The missing file is named, and what to name instead."""
    with pytest.raises(ConfigError, match=r"metadata/annotations\.yaml is missing"):
        read_bundles([tmp_path])


def test_the_same_version_twice_is_refused(tmp_path: Path) -> None:
    """One of them would be lost."""
    folder = written(tmp_path, "0.0.1", "alpha")
    with pytest.raises(ConfigError, match=r"web-operator\.v0\.0\.1: 2 bundles have"):
        read_bundles([folder, folder])


def test_the_folder_for_operatorhub_has_each_version(
    tmp_path: Path, bundles: tuple[StoredBundle, ...]
) -> None:
    """A folder for each version with the bundle and its Dockerfile; ci.yaml names reviewers."""
    home = write_operatorhub(bundles, tmp_path / "hub", ["jane"])
    write_operatorhub(bundles[1:], tmp_path / "hub", ["jane"])
    assert home == tmp_path / "hub" / "operators" / "web-operator"
    assert sorted(path.name for path in home.iterdir()) == ["0.0.10", "0.0.9", "ci.yaml"]
    assert yaml.safe_load((home / "ci.yaml").read_text())["reviewers"] == ["jane"]
    for item in bundles:
        assert read_bundle(home / item.version).manifests == item.manifests
        assert (home / item.version / "Dockerfile").read_text() == dockerfile(item.labels, "")
