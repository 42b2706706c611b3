"""A result that is too large for an event is cut, and its message is kept."""

from __future__ import annotations

from typing import Any

import pytest

from operator_runner.ansible.event_results import (
    bounded,
    shortened,
    with_bounded_result,
)
from operator_runner.ansible.outcome import OutcomeBuilder
from operator_runner.ansible.run_spec import result_limit
from operator_runner.core.model import RunEvent

HUGE = 3_000_000


@pytest.mark.parametrize(
    "result",
    [
        {"failed": True, "msg": "because " + "x" * HUGE},
        {"failed": True, "msg": "because", "stdout": "x" * HUGE, "exception": "y" * HUGE},
        {"results": [{"failed": i > 1900, "msg": f"because {'x' * 3000}"} for i in range(2000)]},
        {"msg": "because", **{f"fact {i}": {"a": ["x" * 100] * 20} for i in range(2000)}},
        {"msg": "because", "deep": {str(i): {str(j): j for j in range(450)} for i in range(450)}},
    ],
    ids=["message", "output", "items", "facts", "numbers"],
)
def test_the_reason_of_a_failure_is_kept(result: dict[str, Any]) -> None:
    """Any large result is cut to the limit, and the failure's message keeps its beginning."""
    short = shortened(result)
    assert len(str(short)) <= 700_000
    data = {"task": "Big", "task_path": "main.yml:1", "res": short, "host": "localhost"}
    builder = OutcomeBuilder()
    builder.add(RunEvent("runner_on_failed", data))
    builder.add(RunEvent("playbook_on_stats", {"failures": {"localhost": 1}}))
    (failure,) = builder.build(None, 2, "").failures  # type: ignore[arg-type]
    assert failure.message.startswith("because")
    assert len(failure.message.encode()) <= 16 * 1024


def test_only_results_over_the_limit_are_cut() -> None:
    """An event with a small result, or with none, is passed on as it is."""
    event = {"event": "runner_on_ok", "event_data": {"res": {"msg": "x" * 2000, "rc": 0}}}
    assert with_bounded_result(event, 3000) is event
    cut = with_bounded_result({**event, "counter": 1}, 1500)
    assert cut["counter"] == 1
    assert cut["event_data"]["res"]["rc"] == 0
    assert "[cut: " in cut["event_data"]["res"]["msg"]
    assert with_bounded_result({"event": "verbose"}, 0) == {"event": "verbose"}


def test_output_of_many_megabytes_is_cut() -> None:
    """An event has at most 4 MiB of output, with a mark; output of 3 MB is passed on whole."""
    printed = "ok: [localhost] => " + "x" * HUGE
    event = {"event": "runner_on_ok", "stdout": printed, "event_data": {"res": {"msg": "a"}}}
    assert bounded(event, 1000) is event
    cut = bounded({**event, "stdout": printed * 30}, 1000)
    assert len(cut["stdout"].encode()) <= 4 * 1024**2
    assert cut["stdout"].startswith("ok: [localhost] => xxx")
    assert f" of {len(printed) * 30} characters]" in cut["stdout"]


def test_data_of_set_stats_is_cut_and_counts_are_kept() -> None:
    """The event of the end of a play is decoded as fast as others."""
    data = {"ok": {"localhost": 3}, "artifact_data": {"much": "x" * HUGE}}
    event = {"event": "playbook_on_stats", "event_data": data}
    cut = bounded(event, 100_000)["event_data"]
    assert cut["ok"] == {"localhost": 3}
    assert len(str(cut["artifact_data"])) <= 100_000
    assert bounded(event, HUGE * 2) is event


def test_the_limit_is_that_of_ansible_runner() -> None:
    """MAX_EVENT_RES of the operator's environment counts; a text that is not a number does not."""
    assert result_limit({"MAX_EVENT_RES": "1000"}) == 1000
    assert result_limit({}) == result_limit({"MAX_EVENT_RES": "many"}) == 700_000
