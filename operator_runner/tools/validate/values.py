"""Values of tasks in the forms that Ansible accepts. Pure.

Also: tasks and plays that wait for input, which a run reports as an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ansible.modules
from ansible.parsing.splitter import parse_kv

CORE_MODULES = frozenset(path.stem for path in Path(ansible.modules.__path__[0]).glob("*.py"))
"""Short names of the modules of ansible-core."""
_MARKS = ("{{", "{%", "{#")
_CORE = re.compile(r"^ansible\.(builtin|legacy)\.")


def short_name(action: Any) -> str:
    """Return the name of a module; of ansible-core, without the collection."""
    return _CORE.sub("", str(action))


def old_action(value: Any) -> tuple[Any, Any]:
    """Return module and arguments of `action: copy src=a` and `action: {module: copy, src: a}`."""
    if isinstance(value, dict):
        return value.get("module"), {key: each for key, each in value.items() if key != "module"}
    name, _, arguments = str(value).partition(" ")
    return name, arguments


def key_values(action: Any, text: str) -> Any:
    """Return the arguments in `src=a dest=b` as a map; the text if it has none."""
    name = short_name(action)
    raw = name in {"command", "shell", "raw", "script", "include_vars", "include_tasks"}
    parsed = parse_kv(text, check_raw=raw or name in {"import_tasks", "meta"})
    return parsed or text


def listed(value: Any) -> list[Any]:
    """Return a list as it is, another value as a list of one, None as an empty list."""
    if value is None:
        return []
    return list(value) if isinstance(value, list) else [value]


def mapping(value: Any) -> dict[Any, Any]:
    """Return a map as it is, any other value as an empty one."""
    return value if isinstance(value, dict) else {}


def has_marks(value: Any) -> bool:
    """Return whether a value is a text with delimiters of Jinja."""
    return isinstance(value, str) and any(mark in value for mark in _MARKS)


def texts(value: Any) -> Iterator[str]:
    """Yield the texts in a value at all depths, and keys that are templates."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from texts(key) if has_marks(key) else ()
            yield from texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from texts(each)


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
