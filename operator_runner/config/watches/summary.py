"""Summarize a watches file, in one line for each kind. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from operator_runner.core.model import Deselection, Finalizer, RunContent, Watch


def summarize(watches: Sequence[Watch]) -> Iterator[str]:
    """Yield, for each kind, its role or playbook, its finalizer and its deselection.

    Example: `shop.example.com/v1, Kind=Web: role /opt/ansible/roles/web`.
    """
    for watch in watches:
        parts = [_content(watch.content)]
        if watch.finalizer is not None:
            parts.append(f"finalizer {watch.finalizer.name}: {_cleanup(watch.finalizer)}")
        if watch.deselection is not None:
            name = watch.deselection.annotation
            parts.append(f"deselection {name}: {_cleanup(watch.deselection)}")
        yield f"{watch.gvk}: {'; '.join(parts)}"


def _content(content: RunContent) -> str:
    word = "playbook" if content.role is None else "role"
    return f"{word} {content.path}"


def _cleanup(cleanup: Finalizer | Deselection) -> str:
    content = "the same" if cleanup.content is None else _content(cleanup.content)
    with_vars = f" with {', '.join(cleanup.vars)}" if cleanup.vars else ""
    return f"{content}{with_vars}"
