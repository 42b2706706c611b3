"""The Upgradeable condition, and its place among existing conditions."""

from __future__ import annotations

from operator_runner.core.model import GVK, Json, ObjectRef
from operator_runner.olm import Condition, upgradeable_condition, with_condition

DB = GVK("example.com", "v1", "Db")
GOOD = upgradeable_condition(())
THEN, NOW = "2030-01-01T00:00:00Z", "2030-01-01T00:10:00Z"


def db(name: str) -> ObjectRef:
    return ObjectRef(DB, "shop", name)


def condition(verdict: Condition, time: str) -> Json:
    return {
        "type": verdict.type,
        "status": verdict.status,
        "reason": verdict.reason,
        "message": verdict.message,
        "lastTransitionTime": time,
    }


def test_an_operator_at_rest_is_upgradeable() -> None:
    """Status and reason are those that OLM's documentation uses."""
    assert (GOOD.type, GOOD.status, GOOD.reason) == ("Upgradeable", "True", "OperatorUpgradeable")


def test_a_busy_operator_names_its_runs() -> None:
    """The first three in the order in which they began, and how many more there are."""
    busy = upgradeable_condition([db("a"), db("b"), db("c"), db("d"), db("e")])

    assert (busy.status, busy.reason) == ("False", "OperatorBusy")
    assert busy.message.endswith(": Db shop/a, Db shop/b, Db shop/c and 2 more")
    assert upgradeable_condition([db("a")]).message.endswith(": Db shop/a")


def test_a_new_condition_joins_those_of_other_types() -> None:
    """They stay as they are, and in front."""
    other = {"type": "Healthy", "status": "True", "extra": 1}

    assert with_condition([other], GOOD, NOW) == [other, condition(GOOD, NOW)]
    assert with_condition(None, GOOD, NOW) == [condition(GOOD, NOW)]


def test_an_equal_condition_is_not_written() -> None:
    """Times and fields of others are ignored."""
    current = condition(GOOD, THEN) | {"observedGeneration": 3}

    assert with_condition([current], GOOD, NOW) is None


def test_only_a_new_status_is_a_transition() -> None:
    """Another message keeps the time; another status has the time of now."""
    first, second = upgradeable_condition([db("a")]), upgradeable_condition([db("b")])

    assert with_condition([condition(first, THEN)], second, NOW) == [condition(second, THEN)]
    assert with_condition([condition(first, THEN)], GOOD, NOW) == [condition(GOOD, NOW)]


def test_duplicate_conditions_are_removed() -> None:
    """The schema permits both in a list; OLM reads only the first."""
    twice = [condition(GOOD, THEN), condition(upgradeable_condition([db("a")]), NOW)]

    assert with_condition(twice, GOOD, NOW) == [condition(GOOD, THEN)]
