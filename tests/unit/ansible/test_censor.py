"""What no_log hides stays hidden."""

from __future__ import annotations

from operator_runner.ansible.censor import censor
from operator_runner.core.model import Json

_LINE = 'fatal: [localhost]: FAILED! => {"censored": "hidden", "changed": false}'


def event(result: Json, stdout: str) -> Json:
    return {"event": "runner_on_failed", "event_data": {"res": result}, "stdout": stdout}


def test_the_message_beside_a_hidden_result_goes() -> None:
    """Of the output of a censored result only the line that says so is kept."""
    told = event({"censored": "hidden"}, f"[ERROR]: xyzzy\r\nOrigin: a.yml\r\n{_LINE}")
    assert censor(told)["stdout"] == _LINE


def test_a_hidden_item_hides_the_output_of_its_loop() -> None:
    """A loop with a censored item says nothing else either."""
    told = event({"results": [{"censored": "hidden"}]}, "failed: item xyzzy")
    assert "xyzzy" not in str(censor(told))


def test_other_output_is_left_alone() -> None:
    """What is not hidden is not touched."""
    told = event({"msg": "plain"}, "fatal: plain")
    assert censor(told) is told
    assert censor({"event": "verbose", "stdout": "x"})["stdout"] == "x"
