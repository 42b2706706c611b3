"""Results of tasks that are too large for an event: they are cut, not left out.

ansible-runner's callback plugin empties a result of more than 700,000 characters
(MAX_EVENT_RES): why the task has failed is lost. Here its texts are shortened until it fits. What
`no_log` hides has been replaced before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from operator_runner.ansible.forkserver.wrapping import wrap
from operator_runner.core.truncation import truncated

_TEXT_BYTES = (64 * 1024, 8 * 1024, 1024)
"""Lengths of texts that are tried, one after the other."""
_ITEMS = 100
"""Items of a list or map that are kept where texts alone are not what makes it large."""
_TOLD = ("msg", "message", "reason", "module_stderr", "failed", "changed", "rc")
"""What is kept of a result that is large in other ways."""
_DEFAULT_LIMIT = 700_000


def install() -> None:
    """Have the plugin do so, once it is loaded, in this process and its forks."""
    from ansible.plugins.loader import PluginLoader

    wrap(PluginLoader, "_load_module_source", _load)


def _load(original: Callable[..., Any], loader: Any, *, python_module_name: str, path: str) -> Any:
    module = original(loader, python_module_name=python_module_name, path=path)
    # Another version of it may work in another way, and is left alone.
    context = getattr(module, "EventContext", None)
    if context is not None and hasattr(context, "get_begin_dict"):
        wrap(context, "get_begin_dict", _begin_dict)
    return module


def _begin_dict(original: Callable[..., Any], context: Any) -> dict[str, Any]:
    event: dict[str, Any] = original(context)
    if event.get("event_data", {}).get("res") == {}:
        event["event_data"]["res"] = shortened(context.get().get("res") or {})
    return event


def shortened(result: Any, limit: int = _DEFAULT_LIMIT) -> Any:
    """Return a result with its texts, then its lists and maps cut, so that `str` fits `limit`."""
    for size in _TEXT_BYTES:
        short = _cut(result, size, None)
        if len(str(short)) <= limit:
            return short
    short = _cut(result, _TEXT_BYTES[-1], _ITEMS)
    if len(str(short)) <= limit:
        return short
    return {key: short[key] for key in _TOLD if key in short} if isinstance(short, dict) else {}


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
    return pair[0] not in (*_TOLD, "results", "exception")


def _has_failed(item: Any) -> bool:
    return isinstance(item, dict) and bool(item.get("failed"))
