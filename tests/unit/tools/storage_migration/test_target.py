"""Targets of a migration from a CRD, and valid checkpoints."""

from __future__ import annotations

import pytest

from operator_runner.core.errors import ConfigError
from operator_runner.core.model import Json
from operator_runner.tools.storage_migration.target import (
    ANNOTATION,
    Checkpoint,
    MigrationTarget,
    read_checkpoint,
)


def crd(
    *, stored: tuple[str, ...] = ("v1", "v2"), checkpoint: str = "", served: bool = True
) -> Json:
    return {
        "metadata": {
            "name": "webs.example.com",
            "uid": "u1",
            "generation": 3,
            "annotations": {ANNOTATION: checkpoint} if checkpoint else {},
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


def test_a_checkpoint_is_valid_for_one_state_of_the_crd() -> None:
    """Another generation, another uid or an invalid checkpoint restarts the migration."""
    target = MigrationTarget.of(crd())
    kept = Checkpoint("u1", 3, "token", 250)
    assert read_checkpoint(crd(checkpoint=kept.text()), target) == kept
    for other in (Checkpoint("u2", 3, "token", 250), Checkpoint("u1", 2, "token", 250)):
        assert read_checkpoint(crd(checkpoint=other.text()), target) is None
    for text in ("", "nonsense", "[]", "{}", '{"uid": "u1", "more": 1}'):
        assert read_checkpoint(crd(checkpoint=text), target) is None
