"""A TCP relay in front of the API server, which a test can freeze: the API then hangs."""

from __future__ import annotations

import asyncio
from contextlib import suppress


class Relay:
    """Forwards connections from a free port to `host`:`port`, as long as it is not frozen."""

    def __init__(self, host: str, port: int) -> None:
        """Forward to there."""
        self._target = host, port
        self._moving = asyncio.Event()
        self._moving.set()
        self._held = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    async def start(self) -> None:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def freeze(self) -> None:
        """Keep connections open, and accept new ones, but move no byte."""
        self._held.clear()
        self._moving.clear()

    async def held(self) -> None:
        """Return once something is held back."""
        await self._held.wait()

    def thaw(self) -> None:
        """Go on."""
        self._moving.set()

    async def stop(self) -> None:
        """Close everything."""
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with suppress(OSError, asyncio.CancelledError):
            await self._relay(reader, writer)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._moving.is_set():
            self._held.set()
        await self._moving.wait()
        far_reader, far_writer = await asyncio.open_connection(*self._target)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump(reader, far_writer))
                both.create_task(self._pump(far_reader, writer))
        finally:
            for end in (writer, far_writer):
                end.close()
                with suppress(OSError, asyncio.CancelledError):
                    await end.wait_closed()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                if not self._moving.is_set():
                    self._held.set()
                await self._moving.wait()
                writer.write(data)
                await writer.drain()
        writer.close()
