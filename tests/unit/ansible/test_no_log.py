"""Output that no_log hides is not shown."""

from __future__ import annotations

from operator_runner.ansible.executor import Censor
from operator_runner.core.model import Json

_LINE = 'fatal: [localhost]: FAILED! => {"censored": "hidden", "changed": false}'


def event(result: Json, stdout: str) -> Json:
    return {"event": "runner_on_failed", "event_data": {"res": result}, "stdout": stdout}


def hidden(stdout: str, kind: str = "runner_on_ok", task: str = "a") -> Json:
    data = {"res": {"censored": "hidden"}, "task_uuid": task}
    return {"event": kind, "event_data": data, "stdout": stdout}


def is_changed(censored: Json) -> bool:
    changed: bool = censored["event_data"]["res"]["changed"]
    return changed


def test_the_message_of_a_censored_result_is_removed() -> None:
    """Of the output of a censored result only the line with `censored` is kept."""
    given = event({"censored": "hidden"}, f"[ERROR]: xyzzy\r\nOrigin: a.yml\r\n{_LINE}")
    assert Censor()(given)["stdout"] == _LINE


def test_a_hidden_item_hides_the_output_of_its_loop() -> None:
    """The output of a loop with a censored item is hidden as well."""
    given = event({"results": [{"censored": "hidden"}]}, "failed: item xyzzy")
    assert "xyzzy" not in str(Censor()(given))


def test_other_output_is_unchanged() -> None:
    """Other values are unchanged."""
    given = event({"msg": "plain"}, "fatal: plain")
    assert Censor()(given) is given
    assert Censor()({"event": "verbose", "stdout": "x"})["stdout"] == "x"


def test_a_hidden_result_keeps_its_changed() -> None:
    """ansible-runner removes `changed` with the result; the status in the output has it."""
    assert is_changed(Censor()(hidden("\x1b[0;33mchanged: [localhost]\x1b[0m")))
    assert is_changed(Censor()(hidden('changed: [localhost -> h.example] => {"censored": "x"}')))
    assert not is_changed(Censor()(hidden("ok: [localhost]")))
    assert not is_changed(Censor()(hidden("")))


def test_a_hidden_loop_has_changed_if_one_of_its_items_has() -> None:
    """A loop prints the status of its items alone, and another task has its own."""
    censor = Censor()
    item = "changed: [localhost] => (item=(censored due to no_log))"
    assert is_changed(censor(hidden(item, "runner_item_on_ok")))
    assert not is_changed(censor(hidden("ok: [localhost]", "runner_item_on_ok")))
    assert is_changed(censor(hidden("")))
    assert not is_changed(censor(hidden("", task="b")))


def test_the_status_of_a_hidden_result_is_shown_without_anything_else() -> None:
    """The text after the status may be the item or the result."""
    given = hidden("changed: [localhost] => (item=xyzzy)\r\n    said: xyzzy")
    assert Censor()(given)["stdout"] == "changed: [localhost]"
    failing = hidden("changed: [xyzzy]", "runner_on_failed")
    assert "xyzzy" not in str(Censor()(failing))
