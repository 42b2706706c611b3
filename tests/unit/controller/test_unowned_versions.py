"""Versions of objects whose events came before their owners were known."""

from __future__ import annotations

import pytest

from operator_runner.controller.sources import unowned_versions
from operator_runner.controller.sources.unowned_versions import UnownedVersions
from operator_runner.core.model import GVK, ObjectRef

KIND = GVK("", "v1", "ConfigMap")
OTHER_KIND = GVK("", "v1", "Secret")
A, B, C = (ObjectRef(KIND, "default", name) for name in "abc")


@pytest.fixture
def versions() -> UnownedVersions:
    """Return versions that are kept."""
    return UnownedVersions(enabled=True)


def test_an_object_without_an_event_has_the_version_of_the_list(
    versions: UnownedVersions,
) -> None:
    """It may have been deleted before that list."""
    assert versions.latest(A) == ""
    versions.listed(KIND, "5")
    assert versions.latest(A) == "5"
    assert versions.latest(ObjectRef(OTHER_KIND, "default", "a")) == ""


@pytest.mark.parametrize(("listed", "event", "latest"), [("5", "9", "9"), ("9", "5", "9")])
def test_the_newer_one_of_list_and_event_is_returned(
    versions: UnownedVersions, listed: str, event: str, latest: str
) -> None:
    """Versions are compared as numbers; objects without an event have that of the list."""
    versions.listed(KIND, listed)
    versions.event(A, event)
    assert versions.latest(A) == latest
    assert versions.latest(B) == listed


def test_an_event_without_a_list_has_its_own_version(versions: UnownedVersions) -> None:
    """The watch may not have listed all objects yet."""
    versions.event(A, "100")
    assert (versions.latest(A), versions.latest(B)) == ("100", "")


def test_lists_of_several_namespaces_keep_the_newest_version(versions: UnownedVersions) -> None:
    """A list without a version does not remove it."""
    for version in ("9", "10", "8", ""):
        versions.listed(KIND, version)
    assert versions.latest(A) == "10"


def test_dropped_events_count_for_all_objects_of_their_kind(
    versions: UnownedVersions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest event is dropped; an object with an unknown event may have been that one."""
    monkeypatch.setattr(unowned_versions, "_MAX_OBJECTS", 2)
    versions.event(A, "1")
    versions.event(B, "2")
    versions.event(A, "3")
    versions.event(C, "4")
    assert [versions.latest(ref) for ref in (A, B, C)] == ["3", "2", "4"]
    assert versions.latest(ObjectRef(KIND, "default", "d")) == "2"


def test_no_events_are_kept_if_no_watch_skips_runs() -> None:
    """They would only cost memory."""
    versions = UnownedVersions(enabled=False)
    versions.event(A, "1")
    assert versions.latest(A) == ""
