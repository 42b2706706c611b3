"""Versions of collections that cannot work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from operator_runner.core.older_collections import lacking, replaced_by_bundled, replacements


def _install(place: Path, collection: str, version: str) -> Path:
    folder = place.joinpath("ansible_collections", *collection.split("."))
    folder.mkdir(parents=True)
    about = {"collection_info": {"version": version}}
    (folder / "MANIFEST.json").write_text(json.dumps(about))
    return folder


@pytest.mark.parametrize(
    ("collection", "version", "lacks"),
    [
        ("kubernetes.core", "2.2.3", "distutils"),
        ("kubernetes.core", "2.4.0", ""),
        ("kubernetes.core", "10.0.0", ""),
        ("operator_sdk.util", "0.4.0", "openshift"),
        ("operator_sdk.util", "0.5.0", ""),
        ("operator_sdk.util", "", ""),
        ("acme.own", "0.1.0", ""),
    ],
)
def test_versions_that_need_a_missing_package_cannot_work(
    collection: str, version: str, lacks: str
) -> None:
    """With the package they can; an unknown version is left alone."""
    reason = lacking(collection, version, lambda _: False)
    assert lacks in reason
    assert bool(reason) == bool(lacks)
    assert lacking(collection, version, lambda _: True, "0.5.0") == ""


def test_a_version_that_cannot_work_is_replaced_if_there_is_another_one(tmp_path: Path) -> None:
    """The message names both versions and the cure; without another one nothing changes."""
    own, bundled = tmp_path / "own", tmp_path / "bundled"
    old = _install(own, "kubernetes.core", "2.2.3")
    _install(own, "operator_sdk.util", "0.5.0")
    missing = bundled / "ansible_collections" / "kubernetes" / "core"
    assert replaced_by_bundled("kubernetes.core", [old, missing], lambda _: False) == [old, missing]
    new = _install(bundled, "kubernetes.core", "6.5.0")
    assert replaced_by_bundled("kubernetes.core", [old, new], lambda _: False) == [new]
    assert replaced_by_bundled("kubernetes.core", [old, new], lambda _: True) == [old, new]
    for util, used in (("", [new]), ("0.4.0", [new]), ("0.5.0", None)):
        pair = tmp_path / f"with {util}"
        older = _install(pair, "kubernetes.core", "2.3.1")
        if util:
            _install(pair, "operator_sdk.util", util)
        found = replaced_by_bundled("kubernetes.core", [older, new], lambda _: False)
        assert found == (used or [older, new])
    (message,) = replacements([own], [bundled], lambda _: False)
    assert "kubernetes.core 2.2.3" in message
    assert "kubernetes.core 6.5.0 instead" in message
    assert "requirements.yml" in message
