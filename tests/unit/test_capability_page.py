"""docs/capability-levels.md claims levels I to IV, item by item; each claim names its test."""

from __future__ import annotations

from pathlib import Path

from tests.support.named_tests import missing, named, unproven
from tests.support.operator import REPOSITORY

PAGE = "capability-levels.md"


def test_every_test_that_it_names_exists() -> None:
    """A test that is renamed has to be renamed there."""
    assert len(named(PAGE)) > 20
    assert missing(PAGE) == []


def test_every_item_names_a_test() -> None:
    """Every claim has a test; missing features are in lists, not in tables."""
    assert unproven(PAGE, "| item |") == []


def test_the_levels_are_complete() -> None:
    """All eight items of levels I and II have a row."""
    text = (REPOSITORY / "docs" / PAGE).read_text()
    first, second = text.split("\n## ")[1:3]
    assert first.startswith("I. ")
    assert second.startswith("II. ")
    rows = [line for line in (first + second).splitlines() if line.startswith("| ")]
    assert len([row for row in rows if not row.startswith("| item |")]) >= 8


def test_the_bundle_claims_no_more() -> None:
    """The annotation `capabilities` names the level that the page shows."""
    base = Path("config/manifests/bases/nginx-operator.clusterserviceversion.yaml")
    text = (REPOSITORY / base).read_text()
    (line,) = [
        line.strip() for line in text.splitlines() if line.strip().startswith("capabilities:")
    ]
    page = (REPOSITORY / "docs" / PAGE).read_text()
    assert line in page
