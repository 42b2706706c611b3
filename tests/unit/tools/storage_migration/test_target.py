"""Targets of a migration from a CRD."""

from __future__ import annotations

import pytest

from operator_runner.core.errors import ConfigError
from operator_runner.core.model import Json
from operator_runner.tools.storage_migration import MigrationTarget


def crd(*, stored: tuple[str, ...] = ("v1", "v2"), served: bool = True) -> Json:
    return {
        "metadata": {
            "name": "webs.example.com",
            "uid": "u1",
            "generation": 3,
        },
        "spec": {
            "group": "example.com",
            "names": {"plural": "webs"},
            "versions": [
                {"name": "v1", "served": True, "storage": False},
                {"name": "v2", "served": served, "storage": True},
                {"name": "v0", "served": False, "storage": False},
            ],
        },
        "status": {"storedVersions": list(stored)},
    }


def test_the_storage_version_is_listed_first() -> None:
    """The other served versions are tried after it, those not served never."""
    target = MigrationTarget.of(crd())
    assert (target.storage, target.readable) == ("v2", ("v2", "v1"))


def test_object_paths_are_quoted() -> None:
    """Names are quoted; an object without namespace is cluster-scoped."""
    target = MigrationTarget.of(crd())
    assert target.path("v1") == "/apis/example.com/v1/webs"
    assert target.path("v2", "ns", "a b") == "/apis/example.com/v2/namespaces/ns/webs/a%20b"
    assert target.path("v2", name="a") == "/apis/example.com/v2/webs/a"


@pytest.mark.parametrize(
    ("stored", "done"), [(("v2",), True), (("v1", "v2"), False), (("v1",), False), ((), False)]
)
def test_done_is_when_nothing_else_is_stored(stored: tuple[str, ...], done: bool) -> None:
    """It is done if storedVersions has only the storage version."""
    assert MigrationTarget.of(crd(stored=stored)).is_done is done


def test_a_storage_version_that_is_not_served_is_refused() -> None:
    """The error names the CRD, the version and the field."""
    with pytest.raises(ConfigError, match=r"webs\.example\.com.*v2 is not served.*served: true"):
        MigrationTarget.of(crd(served=False))
