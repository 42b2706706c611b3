"""A result that is too large for an event is cut, and says what it said first."""

from __future__ import annotations

from typing import Any

import pytest

from operator_runner.ansible.outcome import OutcomeBuilder
from operator_runner.ansible.templating.event_results import shortened
from operator_runner.core.model import RunEvent

HUGE = 3_000_000


@pytest.mark.parametrize(
    "result",
    [
        {"failed": True, "msg": "because " + "x" * HUGE},
        {"failed": True, "msg": "because", "stdout": "x" * HUGE, "exception": "y" * HUGE},
        {"results": [{"failed": i > 1900, "msg": f"because {'x' * 3000}"} for i in range(2000)]},
        {"msg": "because", **{f"fact {i}": {"a": ["x" * 100] * 20} for i in range(2000)}},
        {"msg": "because", "deep": {str(i): {str(j): j for j in range(900)} for i in range(900)}},
    ],
    ids=["message", "output", "items", "facts", "numbers"],
)
def test_why_a_task_has_failed_stays(result: dict[str, Any]) -> None:
    """Whatever makes the result large, it fits, and the failure's message begins as it did."""
    short = shortened(result)
    assert len(str(short)) <= 700_000
    data = {"task": "Big", "task_path": "main.yml:1", "res": short, "host": "localhost"}
    builder = OutcomeBuilder()
    builder.add(RunEvent("runner_on_failed", data))
    builder.add(RunEvent("playbook_on_stats", {"failures": {"localhost": 1}}))
    (failure,) = builder.build(None, 2, "").failures  # type: ignore[arg-type]
    assert failure.message.startswith("because")
    assert len(failure.message.encode()) <= 16 * 1024
