"""Invalid and malicious ConversionReviews get a response with a message."""

from __future__ import annotations

import io
import json
import ssl
import tracemalloc
from collections.abc import AsyncIterator

import aiohttp
import pytest

from operator_runner.config.watches.expressions import evaluate
from operator_runner.conversion.converter import Converter
from operator_runner.conversion.server import memory_for, serve_conversions
from operator_runner.core.model import GVK, Conversion
from operator_runner.net.certificates import unverified_context
from operator_runner.net.sockets import Listener

GROUP = "shop.example.com"
DEEP = "[" * 100_000


MEMORY = 400_000_000
"""Bytes, of a container that is smaller than the usual one."""


@pytest.fixture
async def server() -> AsyncIterator[Listener]:
    """Serve the conversions of one kind."""
    conversion = Conversion("v1", {("spec", "n"): "spec.size"}, {("spec", "size"): "spec.n"})
    converters = {(GROUP, "Web"): Converter(GVK(GROUP, "v2", "Web"), [conversion], evaluate)}
    context = unverified_context("test", ["127.0.0.1"])
    served = await serve_conversions(converters, 0, context, lambda *_: None, memory=MEMORY)
    yield served
    await served.stop()


async def post(server: Listener, body: bytes, **headers: str) -> tuple[int, str]:
    """Send a body as the API server does; return status and text."""
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    url = f"https://127.0.0.1:{server.port}/convert"
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, data=io.BytesIO(body), ssl=trust, headers=headers) as response,
    ):
        return response.status, await response.text()


def review(*objects: str) -> bytes:
    """Return a review of objects in JSON."""
    request = f'{{"uid":"u","desiredAPIVersion":"{GROUP}/v2","objects":[{",".join(objects)}]}}'
    head = '"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview"'
    return f'{{{head},"request":{request}}}'.encode()


def web(spec: str, metadata: str = '{"name":"x"}') -> str:
    """Return an object of v1 in JSON."""
    return f'{{"apiVersion":"{GROUP}/v1","kind":"Web","metadata":{metadata},"spec":{spec}}}'


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[]", "expected a ConversionReview"),
        (DEEP.encode(), "nested too deep"),
        (review(web(f'{{"a":{DEEP}')), "nested too deep"),
        (review(web(f'{{"size":{"9" * 5000}}}')), "not JSON"),
    ],
)
async def test_a_body_without_a_review_is_a_400(
    server: Listener, body: bytes, problem: str
) -> None:
    """It is a 400 that names the reason."""
    status, text = await post(server, body)
    assert (status, problem in text) == (400, True), text


@pytest.mark.parametrize(
    "body",
    [b"[" + b"[]," * 1_000_000 + b"1]", b"[" * 2_000_000, b" " * (MEMORY // 8 + 1)],
    ids=["values", "levels", "size"],
)
async def test_a_review_that_does_not_fit_the_memory_is_a_413(
    server: Listener, body: bytes
) -> None:
    """The port has no authentication: a neighbour in the network could end the operator."""
    status, text = await post(server, body)
    assert status == 413, text
    [converted] = json.loads((await post(server, review(web('{"size":1}'))))[1])["response"][
        "convertedObjects"
    ]
    assert converted["apiVersion"] == f"{GROUP}/v2"


@pytest.mark.parametrize(
    ("value", "most"),
    [
        ([json.loads(web('{"size":1,"text":"some words"}'))] * 1000, 10),
        ([[]] * 10_000, 100),
        ([{"a": 1}] * 10_000, 100),
        ("text" * 100_000, 3),
    ],
    ids=["objects", "lists", "maps", "text"],
)
def test_memory_of_a_review_is_not_underestimated(value: object, most: int) -> None:
    """Bombs are more than their size; lists of objects are not taken for bombs."""
    body = json.dumps(value, separators=(",", ":")).encode()
    tracemalloc.start()
    decoded = json.loads(body)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert decoded == value
    assert peak <= memory_for(body) * 1.1
    assert memory_for(body) <= most * len(body)


async def test_a_compressed_body_is_not_expanded(server: Listener) -> None:
    """The API server compresses nothing, and a few bytes could stand for gigabytes."""
    status, text = await post(server, b"\x1f\x8b", **{"Content-Encoding": "gzip"})
    assert (status, "not JSON" in text) == (400, True), text


@pytest.mark.parametrize(
    "odd",
    [
        "7",
        "{}",
        web("[]"),
        web('"text"'),
        web("null", metadata='"text"'),
        web('{"size":1}', metadata='{"name":7,"annotations":"text"}'),
        web('{"size":1}', metadata='{"name":["x"],"annotations":{"a":7}}'),
        web('{"size":1}', metadata='{"annotations":{"conversion.operator-runner.dev/v2":7}}'),
        web('{"size":1}', metadata='{"annotations":{"conversion.operator-runner.dev/v2":"[["}}'),
        web(f'{{"size":{"[" * 900}{"]" * 900}}}'),
    ],
)
async def test_an_invalid_object_is_answered_with_a_failure(server: Listener, odd: str) -> None:
    """The response has the object, or a Failure with the reason."""
    status, text = await post(server, review(odd))
    assert status == 200, text
    response = json.loads(text)["response"]
    assert response["uid"] == "u"
    if response["result"]["status"] == "Failure":
        assert response["result"]["message"]
        assert "internal error" not in response["result"]["message"]
