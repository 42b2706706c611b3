"""docs/security.md claims what attackers cannot do; each claim names the test that shows it."""

from __future__ import annotations

from tests.support.named_tests import missing, named, unproven

PAGE = "security.md"


def test_every_test_that_it_names_exists() -> None:
    """A test that is renamed has to be renamed there."""
    assert len(named(PAGE)) > 30
    assert missing(PAGE) == []


def test_every_claim_names_a_test() -> None:
    """The table of actors claims nothing; all other rows do."""
    actors = ("resource writer", "other namespace", "run", "network neighbour", "role author")
    heads = ("| actor |", "| guarantee |", "| port |", *(f"| {actor} |" for actor in actors))
    assert unproven(PAGE, *heads) == []
