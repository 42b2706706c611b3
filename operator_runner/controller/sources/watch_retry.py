"""Watch a kind until cancelled, also while permissions or its CRD are missing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import NoReturn

import structlog

from operator_runner.core.errors import ApiError, Forbidden
from operator_runner.core.model import GVK
from operator_runner.kube.watch import MetadataEvent

_log = structlog.get_logger(__name__)

_RECHECK_SECONDS = 60.0
"""Delay before a forbidden or failed watch is retried: permissions can be granted."""
_RESTART_SECONDS = 10.0
"""Delay before a watch is restarted after an internal error."""


async def watch_forever(
    stream: Callable[[GVK, str | None], AsyncIterator[MetadataEvent]],
    gvk: GVK,
    namespace: str | None,
    take: Callable[[GVK, MetadataEvent], None],
    watched: str,
    *,
    on_interrupted: Callable[[], None] = lambda: None,
) -> NoReturn:
    """Call `take` for each event of a kind in a namespace (None: all), until cancelled.

    `watched` names the objects in warnings, such as `owned objects`. `on_interrupted` is called
    when the watch has failed or ended, before it is tried again.
    """
    warned = False
    while True:
        try:
            async for event in stream(gvk, namespace):
                warned = False
                _deliver(take, gvk, event)
        except Forbidden as error:
            if not warned:
                _log.warning(
                    "Cannot watch: changes are noticed at the next resync only",
                    watched=watched,
                    gvk=str(gvk),
                    scope=namespace or "all namespaces",
                    error=str(error),
                    hint="grant list and watch to the operator",
                )
                warned = True
        except ApiError as error:
            _log.warning("Watch failed; retrying", gvk=str(gvk), error=str(error))
        except Exception:  # noqa: BLE001
            # Without the watch, manual edits and deletions would not be reverted.
            _log.exception("Watch failed: internal error; retrying", gvk=str(gvk))
            on_interrupted()
            await asyncio.sleep(_RESTART_SECONDS)
            continue
        on_interrupted()
        await asyncio.sleep(_RECHECK_SECONDS)


def _deliver(take: Callable[[GVK, MetadataEvent], None], gvk: GVK, event: MetadataEvent) -> None:
    """Call `take`; an error for one object must not end the watch."""
    try:
        take(gvk, event)
    except Exception:  # noqa: BLE001
        metadata = event.body.get("metadata") or {}
        _log.exception(
            "Event processing failed: internal error",
            gvk=str(gvk),
            namespace=metadata.get("namespace"),
            name=metadata.get("name"),
        )
