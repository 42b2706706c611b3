"""The output of a run in progress, over real sockets."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from aiohttp import web

from operator_runner.core.model import GVK, ObjectRef, RunEvent
from operator_runner.net.sockets import Connections
from operator_runner.telemetry.runs import api, records
from operator_runner.telemetry.runs.api import OperatorView, RunsApi
from operator_runner.telemetry.runs.records import RunStore
from operator_runner.telemetry.servers import serve

LOOPBACK = "127.0.0.1"
REF = ObjectRef(GVK("example.com", "v1", "Page"), "default", "home")
MIB = 1024 * 1024


async def test_a_reader_that_takes_nothing_does_not_keep_its_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The port has few of them, and none is closed for others while its request is served."""
    monkeypatch.setattr(records, "MAX_OUTPUT_BYTES", 64 * MIB)
    monkeypatch.setattr(api, "_STALLED_SECONDS", 0.2)
    store, connections = RunStore(), Connections(4)
    store.started(REF, "uid", "1", ())
    for _ in range(32):  # more than the kernel has room for
        store.on_event("1", RunEvent("verbose", {}, stdout="x" * MIB))
    app = web.Application()
    RunsApi(store, cast("OperatorView", None)).add_routes(app)
    listener = await serve(app, LOOPBACK, 0, "--port", connections=connections)
    try:
        reader, writer = await asyncio.open_connection(LOOPBACK, listener.port, limit=100)
        writer.write(b"GET /api/v1/runs/1/output?follow=true HTTP/1.1\r\nHost: a\r\n\r\n")
        assert b" 200 " in await reader.readuntil(b"\r\n")
        assert len(list(connections)) == 1
        async with asyncio.timeout(60):
            while list(connections):  # noqa: ASYNC110 the server sends no events
                await asyncio.sleep(0.01)
        writer.close()
    finally:
        await listener.stop()
