"""Summarize a watches file, in one line for each kind. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from operator_runner.core.model import Finalizer, RunContent, Watch


def summarize(watches: Sequence[Watch]) -> Iterator[str]:
    """Yield, for each kind, its role or playbook, and its finalizer.

    Example: `shop.example.com/v1, Kind=Web: role /opt/ansible/roles/web`.
    """
    for watch in watches:
        parts = [_content(watch.content)]
        if watch.finalizer is not None:
            parts.append(_finalizer(watch.finalizer))
        yield f"{watch.gvk}: {'; '.join(parts)}"


def _content(content: RunContent) -> str:
    word = "playbook" if content.role is None else "role"
    return f"{word} {content.path}"


def _finalizer(finalizer: Finalizer) -> str:
    content = "the same" if finalizer.content is None else _content(finalizer.content)
    with_vars = f" with {', '.join(finalizer.vars)}" if finalizer.vars else ""
    return f"finalizer {finalizer.name}: {content}{with_vars}"
