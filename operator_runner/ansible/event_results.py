"""Results and output of tasks that are too large for an event are cut, not emptied. Pure.

ansible-runner's callback plugin empties a result of more characters than MAX_EVENT_RES, and with
it the reason of a failure. Runs have a limit that no result reaches, and the process that forwards
the events cuts their texts. Results hidden by `no_log` are already replaced then.
"""

from __future__ import annotations

from typing import Any

from operator_runner.core.texts import truncated

VARIABLE = "MAX_EVENT_RES"
"""Environment variable of ansible-runner: characters of a result in an event."""
UNLIMITED = str(2**62)
_TEXT_BYTES = (64 * 1024, 8 * 1024, 1024)
"""Maximum lengths of texts, tried in this order."""
_ITEMS = 100
"""Items of a list or map that are kept if shortening texts is not enough."""
_STATS = "artifact_data"
"""Key of an event at the end of a play."""
_MAX_OUTPUT_BYTES = 4 * 1024**2
"""Output of one event. At -v and above Ansible prints whole results, such as a list of all objects
of a kind, and the operator decodes each event in its event loop."""
_ESSENTIAL_KEYS = ("msg", "message", "reason", "module_stderr", "failed", "changed", "rc")
"""Keys that are kept of a result that is still too large."""
DEFAULT_LIMIT = 700_000
"""Of ansible-runner."""


def bounded(event: dict[str, Any], limit: int) -> dict[str, Any]:
    """Return an event with a result of about `limit` characters and 4 MiB of output at most.

    The data of `set_stats`, which nothing reads, has the limit of a result.
    """
    event = with_bounded_result(event, limit)
    data = event.get("event_data") or {}
    if len(str(data.get(_STATS, ""))) > limit:
        event = {**event, "event_data": {**data, _STATS: shortened(data[_STATS], limit)}}
    output = event.get("stdout") or ""
    short = truncated(output, _MAX_OUTPUT_BYTES)
    return event if short is output else {**event, "stdout": short}


def with_bounded_result(event: dict[str, Any], limit: int) -> dict[str, Any]:
    """Return an event whose result has at most about `limit` characters as text."""
    data = event.get("event_data") or {}
    if event.get("event") == "playbook_on_stats" or len(str(data.get("res", ""))) <= limit:
        return event
    return {**event, "event_data": {**data, "res": shortened(data["res"], limit)}}


def shortened(result: Any, limit: int = DEFAULT_LIMIT) -> Any:
    """Return a result whose `str` fits `limit`: cut its texts, then its lists and maps."""
    for size in _TEXT_BYTES:
        short = _cut(result, size, None)
        if len(str(short)) <= limit:
            return short
    short = _cut(result, _TEXT_BYTES[-1], _ITEMS)
    if len(str(short)) <= limit:
        return short
    return (
        {key: short[key] for key in _ESSENTIAL_KEYS if key in short}
        if isinstance(short, dict)
        else {}
    )


def _cut(value: Any, size: int, items: int | None) -> Any:
    match value:
        case str():
            return truncated(value, size)
        case dict():
            pairs = [(key, _cut(each, size, items)) for key, each in value.items()]
            return dict(sorted(pairs, key=_is_detail)[:items]) if items else dict(pairs)
        case list() | tuple():
            if items is None or len(value) <= items:
                return [_cut(each, size, items) for each in value]
            # Items of a loop that have failed are what the failure of the task is made of.
            first = sorted(value, key=lambda each: not _has_failed(each))[:items]
            return [*(_cut(each, size, items) for each in first), f"[cut: {items} of {len(value)}]"]
        case _:
            return value


def _is_detail(pair: tuple[Any, Any]) -> bool:
    return pair[0] not in (*_ESSENTIAL_KEYS, "results", "exception")


def _has_failed(item: Any) -> bool:
    return isinstance(item, dict) and bool(item.get("failed"))
