"""List the objects of a CRD page by page, and make the API server rewrite each of them.

Only metadata is read, and only a precondition is sent: the API server reads the object, converts
it, and writes it if its bytes in the storage version differ from the stored ones. Therefore no
field can be lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TypeVar

from operator_runner.core.errors import ApiError, Conflict, Expired, NotFound, Unavailable
from operator_runner.core.model import Json
from operator_runner.kube import paging
from operator_runner.kube.api import FIELD_MANAGER, MERGE_PATCH, METADATA_LIST, Api
from operator_runner.tools.storage_migration.target import MigrationTarget

T = TypeVar("T")

PAGE = 100
"""Objects in a page: the most that is repeated after a kill."""
_RETRY_DELAYS_SECONDS = (1.0, 2.0, 4.0, 8.0)
"""Delays between attempts while the API server is unavailable, such as during its upgrade."""
_UNAVAILABLE = frozenset({0, 429, 503, 504})
"""Statuses to retry, 0 for no response; a failed conversion is a 500, which is not retried."""


class RewriteResult(Enum):
    """Result of rewriting one object; the value is shown to users."""

    REWRITTEN = "rewritten"
    CURRENT = "already current"
    SUPERSEDED = "changed or deleted meanwhile"


@dataclass(frozen=True, slots=True)
class ObjectPage:
    """Metadata of some objects.

    `continue_token` is empty on the last page; `left` is the estimated number of remaining objects.
    """

    items: tuple[Json, ...]
    continue_token: str
    left: int


class StoredObjects:
    """The stored objects of one CRD."""

    def __init__(self, api: Api, target: MigrationTarget, *, dry_run: bool) -> None:
        """Send writes with dryRun=All if `dry_run`."""
        self._api = api
        self._target = target
        self._params = {"fieldManager": FIELD_MANAGER} | ({"dryRun": "All"} if dry_run else {})

    async def page(self, continue_token: str) -> ObjectPage:
        """Return the page at a continue token, or the first page for an empty token.

        Raises ApiError if no served version can be listed.
        """
        first: ApiError | None = None
        for version in self._target.readable:
            try:
                return await with_retries(partial(self._list, version, continue_token))
            except ApiError as error:
                if error.status < 500:  # noqa: PLR2004
                    raise
                first = first or error
        assert first is not None
        raise first

    async def rewrite(self, metadata: Json) -> RewriteResult:
        """Rewrite an object in the storage version, unless it has changed since it was listed.

        A later write has stored it in that version already. Raises ApiError if the API server
        rejects the write, for example because the object cannot be converted.
        """
        path = self._target.path(
            self._target.storage, metadata.get("namespace", ""), metadata["name"]
        )
        listed = metadata["resourceVersion"]
        body = {"metadata": {"uid": metadata["uid"], "resourceVersion": listed}}
        try:
            answer = await with_retries(
                lambda: self._api.request(
                    "PATCH", path, params=self._params, body=body, content_type=MERGE_PATCH
                )
            )
        except (Conflict, NotFound):
            return RewriteResult.SUPERSEDED
        same = answer["metadata"]["resourceVersion"] == listed
        return RewriteResult.CURRENT if same else RewriteResult.REWRITTEN

    async def _list(self, version: str, continue_token: str) -> ObjectPage:
        path = self._target.path(version)
        list_at = partial(paging.list_page, self._api, path, limit=PAGE, accept=METADATA_LIST)
        try:
            answer = await list_at(continue_token)
        except Expired as error:
            # The token's revision is compacted. With the new token the list continues at the same
            # key; without one it starts again, and finished objects are found current.
            answer = await list_at(error.continue_token)
        return ObjectPage(
            tuple(item["metadata"] for item in answer["items"]),
            paging.continue_token(answer),
            answer["metadata"].get("remainingItemCount") or 0,
        )


async def with_retries(send: Callable[[], Awaitable[T]]) -> T:
    """Retry a request while the API server is unavailable, for 15 s. Raises ApiError."""
    for delay in _RETRY_DELAYS_SECONDS:
        try:
            return await send()
        except Unavailable as error:
            if error.status not in _UNAVAILABLE:
                raise
        await asyncio.sleep(delay)
    return await send()
