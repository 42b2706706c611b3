"""Sections of CHANGELOG.md and the release notes made of them."""

from __future__ import annotations

import pytest

from release.changelog import ReleaseError, newest_version, release_notes, sections

CHANGELOG = """\
# Changelog

## Unreleased

- Coming.

## [0.2.0] - 2026-01-31

- New.

### Fixed

- Old.

## v0.1.0

- First.
"""


def test_sections_are_found_by_version() -> None:
    """Brackets, dates and a leading v belong to the heading; deeper headings to the entries."""
    assert sections(CHANGELOG) == {
        "Unreleased": "- Coming.",
        "0.2.0": "- New.\n\n### Fixed\n\n- Old.",
        "0.1.0": "- First.",
    }


@pytest.mark.parametrize(
    ("text", "version"),
    [(CHANGELOG, "0.2.0"), ("# Changelog\n\n## Unreleased\n\n- Coming.\n", None), ("", None)],
)
def test_the_newest_version_is_the_topmost_released_one(text: str, version: str | None) -> None:
    """`Unreleased` is not a version."""
    assert newest_version(text) == version


def test_release_notes_are_the_entries_of_the_version() -> None:
    """Entries of other versions are left out."""
    notes = release_notes(CHANGELOG, "0.2.0")
    assert notes == "# operator-runner 0.2.0\n\n- New.\n\n### Fixed\n\n- Old.\n"


@pytest.mark.parametrize("text", [CHANGELOG, CHANGELOG + "\n## 0.3.0\n"])
def test_a_version_without_entries_has_no_notes(text: str) -> None:
    """The error states which heading to add."""
    with pytest.raises(ReleaseError, match=r"no entries for 0\.3\.0: .* `## 0\.3\.0`"):
        release_notes(text, "0.3.0")
