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
    outer_levels: int = 0,
) -> AsyncIterator[Json]:
    """Yield each page of the list at `path`, with at most `limit` items. Raises ApiError.

    `params` is added to the query; `outer_levels` is as in `Api.request`. Expired means that the
    continue token is too old: the list has to start over.
    """
    token = ""
    while True:
        page = await list_page(
            api, path, token, limit=limit, params=params, accept=accept, outer_levels=outer_levels
        )
        yield page
        token = continue_token(page)
        if not token:
            return


async def list_page(
    api: Api,
    path: str,
    token: str,
    *,
    limit: int = 500,
    params: Mapping[str, str] | None = None,
    accept: str = JSON,
    outer_levels: int = 0,
) -> Json:
    """Return the page at a continue token, or the first page for an empty token.

    The arguments are those of `list_pages`. Raises ApiError.
    """
    query = {**(params or {}), "limit": str(limit)} | ({"continue": token} if token else {})
    return await api.request("GET", path, params=query, accept=accept, outer_levels=outer_levels)


def continue_token(page: Json) -> str:
    """Return the continue token of the next page; empty on the last page."""
    return (page.get("metadata") or {}).get("continue") or ""
