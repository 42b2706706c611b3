"""What no_log hides stays hidden."""

from __future__ import annotations

from operator_runner.ansible.censor import censor
from operator_runner.core.model import Json

_LINE = 'fatal: [localhost]: FAILED! => {"censored": "hidden", "changed": false}'


def event(result: Json, stdout: str) -> Json:
    return {"event": "runner_on_failed", "event_data": {"res": result}, "stdout": stdout}


def test_the_message_beside_a_hidden_result_goes() -> None:
    """Of the output of a censored result only the line with `censored` is kept."""
    given = event({"censored": "hidden"}, f"[ERROR]: xyzzy\r\nOrigin: a.yml\r\n{_LINE}")
    assert censor(given)["stdout"] == _LINE


def test_a_hidden_item_hides_the_output_of_its_loop() -> None:
    """The output of a loop with a censored item is hidden as well."""
    given = event({"results": [{"censored": "hidden"}]}, "failed: item xyzzy")
    assert "xyzzy" not in str(censor(given))


def test_other_output_is_left_alone() -> None:
    """What is not hidden is not touched."""
    given = event({"msg": "plain"}, "fatal: plain")
    assert censor(given) is given
    assert censor({"event": "verbose", "stdout": "x"})["stdout"] == "x"
