"""Empty values that are nested too deep in the lists that runs read.

One object that Python cannot decode would fail every run that lists its kind. A single object
stays whole. See docs/adr/0021-input-limits.md.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import structlog
from aiohttp import hdrs

from operator_runner.core.json_bounds import MAX_DEPTH, Pruner, height
from operator_runner.kube.api import JSON
from operator_runner.proxy.bodies import media_type
from operator_runner.proxy.response_tracker import TrackedRequest
from operator_runner.proxy.run_tokens import Grant

_log = structlog.get_logger(__name__)

LEVELS_AROUND_ITEM = 2
"""The list and its `items`."""
_MAX_NAMES = 3
"""Objects that the warning names."""


def pruner_of(tracked: TrackedRequest, headers: Mapping[str, str]) -> Pruner | None:
    """Return a pruner for a list of objects in JSON; None for any other response."""
    is_json = media_type(headers.get(hdrs.CONTENT_TYPE, "")) == JSON
    if not tracked.is_list or not is_json or hdrs.CONTENT_ENCODING in headers:
        return None
    return Pruner(MAX_DEPTH + LEVELS_AROUND_ITEM + 1)


async def pruned_chunks(pruner: Pruner, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the chunks of a pruned list."""
    async for chunk in chunks:
        if pruned := pruner.feed(chunk):
            yield pruned
    if pruner.rest:
        yield pruner.rest


def deep_objects(body: bytes) -> list[str]:
    """Return the names of objects in a pruned list with emptied values; none for invalid JSON."""
    try:
        return deep_items(json.loads(body))
    except ValueError:
        return []


def deep_items(content: Any) -> list[str]:
    """Return the names of objects in a decoded list with emptied values."""
    items = content.get("items") if isinstance(content, dict) else None
    deep = [item for item in items or () if height(item) > MAX_DEPTH]
    return [_name(item.get("metadata") or {}) for item in deep if isinstance(item, dict)]


def warn_of_pruned(grant: Grant, path: str, names: Sequence[str]) -> None:
    """Log once for each run and path that values were emptied."""
    if path in grant.pruned_paths:
        return
    grant.pruned_paths.add(path)
    _log.warning(
        "Emptied values that are nested too deep",
        run_id=grant.run_id,
        path=path,
        objects=", ".join(names[:_MAX_NAMES]) + (", ..." if len(names) > _MAX_NAMES else ""),
        hint=f"objects in lists have at most {MAX_DEPTH} levels; flatten or delete deeper ones",
    )


def _name(metadata: Mapping[str, Any]) -> str:
    namespace, name = metadata.get("namespace"), metadata.get("name")
    return f"{namespace}/{name}" if namespace else str(name)
