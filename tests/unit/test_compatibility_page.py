"""docs/compatibility.md names tests; they have to be there."""

from __future__ import annotations

from tests.support.named_tests import missing, named, unproven

PAGE = "compatibility.md"
WITHOUT_TESTS = ("| component |", "| change |")
"""Tables of versions, and of changes in ansible-core, whose tests are named below the table."""
HEADS = ("| ansible-operator |", "| user request |", "| fault |")


def test_every_test_that_it_names_exists() -> None:
    """Each line shows its proof; a test that is renamed has to be renamed there."""
    assert len(named(PAGE)) > 100
    assert missing(PAGE) == []


def test_every_line_names_a_test() -> None:
    """Nothing is claimed without one."""
    assert unproven(PAGE, *HEADS, without=WITHOUT_TESTS) == []
