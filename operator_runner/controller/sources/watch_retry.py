"""Follow a kind for as long as it takes: rights may be missing for now, and the kind itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import NoReturn

import structlog

from operator_runner.core.errors import ApiError, Forbidden
from operator_runner.core.model import GVK
from operator_runner.kube.watch import MetadataEvent

_log = structlog.get_logger(__name__)

_RECHECK = 60.0
"""Seconds until a kind that may not be watched is tried again: rights can be granted."""
_RESTART = 10.0
"""Seconds until a watch that ended by an error of our own is begun again."""


async def follow(
    stream: Callable[[GVK, str | None], AsyncIterator[MetadataEvent]],
    gvk: GVK,
    namespace: str | None,
    take: Callable[[GVK, MetadataEvent], None],
    whose: str,
) -> NoReturn:
    """Give each event of a kind in a namespace (None: all) to `take`, until cancelled.

    `whose` says for a warning what is watched, such as `what resources own`.
    """
    complained = False
    while True:
        try:
            async for event in stream(gvk, namespace):
                complained = False
                _give(take, gvk, event)
        except Forbidden as error:
            if not complained:
                _log.warning(
                    f"Cannot watch {whose}, so its changes are seen at the next resync only; "
                    "grant list and watch to the operator",
                    gvk=str(gvk),
                    scope=namespace or "all namespaces",
                    reason=str(error),
                )
                complained = True
        except ApiError as error:
            _log.warning("Watching was interrupted", gvk=str(gvk), reason=str(error))
        except Exception:  # noqa: BLE001
            # Without the watch nothing that is deleted or edited by hand would come back.
            _log.exception("Watching was interrupted: a mistake in operator-runner", gvk=str(gvk))
            await asyncio.sleep(_RESTART)
            continue
        await asyncio.sleep(_RECHECK)


def _give(take: Callable[[GVK, MetadataEvent], None], gvk: GVK, event: MetadataEvent) -> None:
    """Hand an event on; one object that cannot be understood must not end the watch of all."""
    try:
        take(gvk, event)
    except Exception:  # noqa: BLE001
        metadata = event.body.get("metadata") or {}
        _log.exception(
            "An event was not understood: a mistake in operator-runner",
            gvk=str(gvk),
            namespace=metadata.get("namespace"),
            name=metadata.get("name"),
        )
