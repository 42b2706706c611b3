"""Watch a kind until cancelled, also while permissions or its CRD are missing.

Deletions of primary resources that no watch has reported are found here too: a list lacks a known
one. A watch that expired (410, after a long interruption or when a CRD was edited) starts again
with a list, and events in between are lost. kopf delivers the objects of the list, and nothing for
those that are gone; client-go's reflector compares in the same place (`Replace` of its store). For
owned objects see `dependents.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from typing import NoReturn

import structlog

from operator_runner.core.errors import ApiError, Forbidden
from operator_runner.core.model import GVK, Json, ObjectRef, uid_of
from operator_runner.kube.api import continue_token
from operator_runner.kube.discovery import ApiResource
from operator_runner.kube.watch import MetadataEvent


class MissedDeletions:
    """Compares each complete list of a kind with the resources known before."""

    def __init__(
        self,
        resources: Iterable[ApiResource],
        namespaces: Collection[str],
        known: Callable[[GVK], Iterable[tuple[ObjectRef, str]]],
        on_deleted: Callable[[ObjectRef, str], None],
    ) -> None:
        """`known` returns the resources of a kind with their uids.

        `on_deleted` is called with reference and uid of each one that a list lacks. Lists of other
        kinds and of other namespaces than these are ignored; empty means the whole cluster.
        """
        self._known = known
        self._on_deleted = on_deleted
        self._kinds = {
            resource.path(namespace): (resource.gvk, namespace if resource.namespaced else None)
            for resource in resources
            for namespace in namespaces or (None,)
        }
        self._listed: dict[str, set[str]] = {}
        """Uids on the pages so far, by the path of a list whose last page is to come."""

    def on_page(self, path: str, query: Mapping[str, str], content: Json) -> None:
        """Process one page of a list: the request's path and query, and the decoded response."""
        if path not in self._kinds:
            return
        if "continue" not in query:
            self._listed[path] = set()
        uids = self._listed.setdefault(path, set())
        # Aggregated APIs may leave out any of these.
        uids |= {uid_of(item) for item in content.get("items") or ()}
        if not continue_token(content):
            self._compare(path, self._listed.pop(path))

    def _compare(self, path: str, uids: Collection[str]) -> None:
        gvk, namespace = self._kinds[path]
        for ref, uid in list(self._known(gvk)):
            if uid not in uids and namespace in {None, ref.namespace}:
                self._on_deleted(ref, uid)


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
