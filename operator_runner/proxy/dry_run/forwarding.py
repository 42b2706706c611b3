"""Answer the requests of a dry run: writes as dry runs, reads from what the run has written.

Nothing but reads and requests with `dryRun=All` reaches the API server.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from operator_runner.core.async_tasks import WorkerThread
from operator_runner.kube.api import Api, continue_token, is_watch
from operator_runner.proxy.dry_run.overlay import DryRun, ObjectKey, Selectors
from operator_runner.proxy.dry_run.sending import (
    OK,
    ApiResponse,
    Sender,
    refusal,
    scale_of,
)
from operator_runner.proxy.dry_run.writes import DryRunWrite, DryRunWrites
from operator_runner.proxy.ownership_enforcement import Admission
from operator_runner.proxy.request_info import READS, RequestInfo
from operator_runner.proxy.run_tokens import Grant
from operator_runner.proxy.status_errors import StatusError, not_found


class DryRunForwarder:
    """Answers the requests of dry runs."""

    def __init__(self, api: Api, admission: Admission, worker_thread: WorkerThread) -> None:
        """`admission` decides on writes as it does for other runs."""
        self._sender = Sender(api.connection, worker_thread)
        self._writes = DryRunWrites(api, admission, self._sender)

    async def answer(
        self,
        request: web.BaseRequest,
        grant: Grant,
        info: RequestInfo | None,
        read: Callable[[], Awaitable[bytes]],
        *,
        upgraded: bool,
    ) -> web.Response | None:
        """Return the response; None for a read that is to be forwarded.

        `read` returns the body. Raises StatusError for requests that cannot be previewed.
        """
        dry_run = grant.dry_run
        assert dry_run is not None
        if what := refusal(request.method, info, upgraded=upgraded):
            path = request.raw_path.partition("?")[0]
            dry_run.refuse(f"{request.method} {path}")
            raise StatusError(403, f"{what} cannot be previewed, so it was not sent: {path}")
        if request.method in READS:
            found = None if info is None else await self._read(request, grant, info)
            return None if found is None else await self._sender.respond(grant, found)
        assert info is not None
        body = await read()
        write = DryRunWrite.of(
            request, grant, info, has_body=bool(body), request=request, body=body
        )
        return await self._sender.respond(grant, await self._writes.answer(write))

    # Reads ----------------------------------------------------------------------------

    async def _read(
        self, request: web.BaseRequest, grant: Grant, info: RequestInfo
    ) -> ApiResponse | None:
        dry_run = grant.dry_run
        assert dry_run is not None
        if not info.name:
            is_list = not (info.watch or is_watch(request.query))
            if not is_list or not dry_run.touches(info):
                return None
            return await self._list(request, grant, dry_run, info)
        entry = dry_run.entries.get(ObjectKey.of(info))
        if entry is None or info.subresource not in {"", "status", "scale"}:
            return None
        if entry.after is None:
            raise not_found(info)
        if info.subresource == "scale":
            return ApiResponse(OK, scale_of(entry.after))
        return ApiResponse(OK, entry.after)

    async def _list(
        self, request: web.BaseRequest, grant: Grant, dry_run: DryRun, info: RequestInfo
    ) -> ApiResponse:
        path, _, query = request.raw_path.partition("?")
        found = await self._sender.list(grant, f"{path}?{query}")
        if not found.is_success:
            return found
        selectors = Selectors(
            request.query.get("labelSelector", ""), request.query.get("fieldSelector", "")
        )
        items = dry_run.merge(
            info,
            found.body.get("items") or [],
            selectors,
            is_first=not request.query.get("continue"),
            is_last=not continue_token(found.body),
        )
        return ApiResponse(OK, {**found.body, "items": items}, size=found.size + dry_run.size)
