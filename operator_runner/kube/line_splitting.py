"""Split a stream into lines: a watch sends each event as one line of JSON."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator


async def split_lines(chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Yield the lines of a stream, of any length; an unterminated last line is dropped.

    aiohttp's own line iteration raises for lines beyond its buffer; objects are larger.
    """
    parts: list[bytes] = []
    async for chunk in chunks:
        *ended, rest = chunk.split(b"\n")
        for line in ended:
            whole = b"".join([*parts, line])
            parts = []
            if whole:
                yield whole
        if rest:
            parts.append(rest)
