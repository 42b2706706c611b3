"""When cached facts are gathered again."""

from __future__ import annotations

import time

from operator_runner.ansible.forkserver.facts import LONGEST_SECONDS, FactCache, system_signals


def test_facts_are_old_after_an_hour() -> None:
    """They are gathered again, even if their dependencies are unchanged."""
    assert FactCache().is_old
    assert not FactCache(gathered_at=time.monotonic()).is_old
    assert FactCache(gathered_at=time.monotonic() - LONGEST_SECONDS - 1).is_old
    assert LONGEST_SECONDS == 3600


def test_facts_are_equal_in_another_process() -> None:
    """Facts can be written by one process and read by another."""
    kept = FactCache({"a": '{"value": 1, "is_set": false}'}, {"host": ["x"]}, 5.0)
    assert FactCache.of(kept.as_json()) == kept


def test_the_inputs_of_facts_are_stable() -> None:
    """Without a change they are not gathered again."""
    assert system_signals() == system_signals()
