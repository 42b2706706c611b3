"""When cached facts are gathered again."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from operator_runner.ansible.forkserver import facts
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


def test_connections_do_not_change_the_inputs_of_facts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel counts the users of each IPv6 route; another metric is another route."""
    routes = tmp_path / "ipv6_route"
    monkeypatch.setattr(facts, "_IPV6_ROUTES", str(routes))
    nowhere = "0" * 32
    seen = []
    for metric, references in (("00000100", "1"), ("00000100", "2"), ("00000200", "2")):
        route = (nowhere, "40", nowhere, "00", nowhere, metric, references, "0", "00000001", "eth0")
        routes.write_text(" ".join(route) + "\n")
        seen.append(system_signals()["network"])
    assert seen[0] == seen[1] != seen[2]
