"""The manifests of config/storage-migration agree with the nginx operator's CRD."""

from __future__ import annotations

import yaml

from tests.support.operator import REPOSITORY


def test_the_manifests_name_the_crd_and_its_storage_version() -> None:
    """A new storage version has to be written into one of them; the other has no version."""
    (file,) = (REPOSITORY / "crds").glob("*_*.yaml")
    spec = yaml.safe_load(file.read_text())["spec"]
    storage = next(version["name"] for version in spec["versions"] if version["storage"])
    folder = REPOSITORY / "config" / "storage-migration"
    expected = {
        path.stem: yaml.safe_load(path.read_text())["spec"]["resource"]
        for path in folder.glob("*.yaml")
    }
    resource = {"group": spec["group"], "resource": spec["names"]["plural"]}
    assert expected == {"in-tree": resource, "migrator": resource | {"version": storage}}
