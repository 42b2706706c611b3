"""Tasks and plays that wait for input, which a run reports as an error. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from operator_runner.tools.validate.values import key_values

_NEVER = {"never", False}
_TIMES = ("seconds", "minutes")


def waiting(entry: dict[str, Any], action: str = "") -> Iterator[tuple[Any, str]]:
    """Yield values of a task, block or play that make it wait, each with a message.

    `action` is the short name of the module of a task.
    """
    if entry.get("debugger", "never") not in _NEVER:
        yield entry["debugger"], "`debugger` fails the run, which has no terminal: remove it"
    if str(entry.get("strategy")).rpartition(".")[2] == "debug":
        yield entry["strategy"], "`strategy: debug` fails the run, which has no terminal: remove it"
    for prompt in entry.get("vars_prompt") or ():
        message = (
            "unless the spec or `vars` of the watch sets it, the run fails: it has no terminal"
        )
        yield prompt, f"vars_prompt asks for a variable: {message}"
    if action == "pause":
        name = next(key for key in entry if str(key).rpartition(".")[2] == action)
        given = entry[name]
        given = key_values(name, given) if isinstance(given, str) else given
        both = {**(given or {}), **(entry.get("args") or {})}
        if not any(each in both for each in _TIMES):
            yield name, "pause waits for input, and a run has no terminal: set seconds or minutes"
