"""Versions that a release states in several files."""

from __future__ import annotations

from dataclasses import replace

import pytest

from release.versions import Versions, disagreements

AGREEING = Versions("0.2.0", "operator-runner-v0.2.0", "0.0.3", "0.0.3")
CHANGELOG = "# Changelog\n\n## Unreleased\n\n## 0.2.0\n\n- New.\n"


def test_equal_versions_have_no_disagreements() -> None:
    """The operator's version is independent of that of operator-runner."""
    assert list(disagreements(AGREEING, CHANGELOG)) == []


@pytest.mark.parametrize(
    ("versions", "changelog", "message"),
    [
        (AGREEING, "## 0.1.0\n\n- Old.\n", "newest section is 0.1.0, but"),
        (AGREEING, "## Unreleased\n\n- New.\n", "newest section is missing, but"),
        (AGREEING, "## Unreleased\n\n- New.\n\n## web operator\n", "newest section is missing"),
        (AGREEING, "## Unreleased\n\n- New.\n\n## 0.1.0\n", "newest section is 0.1.0, but"),
        (AGREEING, "## Unreleased\n\n- More.\n\n## 0.2.0\n\n- New.\n", "`## Unreleased` has"),
        (replace(AGREEING, builder="operator-runner-v0.1.0"), CHANGELOG, "run `make bundle`"),
        (replace(AGREEING, bundle="0.0.2"), CHANGELOG, "run `make bundle VERSION=0.0.3`"),
    ],
)
def test_a_disagreement_states_file_and_hint(
    versions: Versions, changelog: str, message: str
) -> None:
    """One message for each version that differs."""
    (found,) = disagreements(versions, changelog)
    assert message in found
