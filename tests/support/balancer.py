"""A TCP load balancer on this machine, as a Service is one in a cluster."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress


@asynccontextmanager
async def balancer(port: int, targets: Sequence[int]) -> AsyncIterator[None]:
    """Forward each connection to `port` to the next of the ports that accepts it."""
    turns = itertools.cycle(targets)
    open_connections: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        open_connections.add(task)
        try:
            await forward(reader, writer)
        finally:
            open_connections.discard(task)
            writer.close()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in targets:
            with suppress(OSError):
                far_reader, far_writer = await asyncio.open_connection("127.0.0.1", next(turns))
                await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))
                return

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", port)
    try:
        yield
    finally:
        server.close()
        for task in open_connections:
            task.cancel()
        await asyncio.gather(*open_connections, return_exceptions=True)
