"""Requests to the API of one operator: on this machine, or through the API server's Pod proxy."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import aiohttp
from yarl import URL

from operator_runner.core.errors import ApiError, NotFound, Unavailable
from operator_runner.core.model import Json
from operator_runner.core.texts import printable
from operator_runner.telemetry.runs.access import ROOT

_TIMEOUT_SECONDS = 10.0
_OK, _NOT_FOUND = 200, 404
_MAX_MESSAGE_CHARACTERS = 300
_MAX_MESSAGE_BYTES = 64 * 1024
_MAX_BODY_BYTES = 32 * 1024 * 1024
"""Limit of a document: 500 summaries, or all about one run, are smaller."""


class InvalidResponse(Unavailable):
    """A response that is not that of an operator: other Pods may have its label."""

    def __init__(self, name: str, reason: str) -> None:
        """`name` is that of the client; `reason` is what is wrong."""
        super().__init__(f"invalid response from {name}: {reason}")


@dataclass(frozen=True, slots=True)
class OperatorClient:
    """Reads from one operator. `base` is where its paths begin; `name` is for messages."""

    name: str
    http: aiohttp.ClientSession
    base: URL
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    verify: bool = True
    """Whether the certificate is checked; that of an operator on this machine signs itself."""

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> Json:
        """Return the document at a path below /api/v1. Raises NotFound and other ApiErrors."""
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS), self._open(path, params or {}) as answer:
                document = json.loads(await self._read(answer, _MAX_BODY_BYTES))
        except TimeoutError as error:
            raise Unavailable(f"{self.name}: no answer within {_TIMEOUT_SECONDS:g} s") from error
        except (ValueError, RecursionError) as error:
            raise InvalidResponse(self.name, "not JSON") from error
        if not isinstance(document, dict):
            raise InvalidResponse(self.name, "not an object")
        return document

    async def text(self, path: str, params: Mapping[str, str]) -> AsyncIterator[str]:
        """Yield a text as it comes, until the operator ends it. Raises ApiError."""
        async with self._open(path, params) as answer:
            try:
                async for chunk in answer.content.iter_any():
                    yield chunk.decode(errors="replace")
            except aiohttp.ClientError as error:
                raise Unavailable(f"{self.name}: {error or type(error).__name__}") from error

    @asynccontextmanager
    async def _open(
        self, path: str, params: Mapping[str, str]
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        url = URL(f"{self.base}{path}", encoded=True)
        try:
            async with self.http.get(
                url.update_query(params),
                headers=self.headers,
                ssl=self.verify,
                # A Pod could send the user's credentials elsewhere.
                allow_redirects=False,
            ) as answer:
                if answer.status != _OK:
                    raise await self._refusal(answer)
                yield answer
        except (aiohttp.ClientError, OSError) as error:
            raise Unavailable(f"{self.name}: {error or type(error).__name__}") from error

    async def _refusal(self, answer: aiohttp.ClientResponse) -> ApiError:
        body = await self._read(answer, _MAX_MESSAGE_BYTES)
        text = body.decode(errors="replace")[:_MAX_MESSAGE_CHARACTERS].strip()
        with suppress(ValueError, AttributeError, RecursionError):
            text = str(json.loads(text).get("message") or text)
        kind = NotFound if answer.status == _NOT_FOUND else Unavailable
        return kind(printable(f"{self.name}: {text} (HTTP {answer.status})"), answer.status)

    async def _read(self, answer: aiohttp.ClientResponse, limit: int) -> bytes:
        """Return the body. Raises InvalidResponse if it is larger than `limit`."""
        body = bytearray()
        async for chunk in answer.content.iter_any():
            body += chunk
            if len(body) > limit:
                raise InvalidResponse(self.name, f"larger than {limit} bytes")
        return bytes(body)


def base_of(url: URL | str) -> URL:
    """Return where the paths of an operator at `url` begin."""
    return URL(f"{url}{ROOT}", encoded=True)
