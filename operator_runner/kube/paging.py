"""Read lists of the Kubernetes API in pages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from operator_runner.core.model import Json
from operator_runner.kube.api import JSON, Api


async def list_pages(
    api: Api,
    path: str,
    *,
    limit: int = 500,
    params: Mapping[str, str] | None = None,
    accept: str = JSON,
    around: int = 0,
) -> AsyncIterator[Json]:
    """Yield each page of the list at `path`, with at most `limit` items. Raises ApiError.

    `params` is added to the query; `around` is as in `Api.request`. Expired means that the
    continue token is too old: the list has to start over.
    """
    query = {**(params or {}), "limit": str(limit)}
    while True:
        page = await api.request("GET", path, params=query, accept=accept, around=around)
        yield page
        continue_token = (page.get("metadata") or {}).get("continue")
        if not continue_token:
            return
        query["continue"] = continue_token
