"""Invalid and malicious ConversionReviews get a response with a message."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator

import aiohttp
import pytest

from operator_runner.config.watches.expressions import evaluate
from operator_runner.conversion.converter import Converter
from operator_runner.conversion.server import serve_conversions
from operator_runner.core.model import GVK, Conversion
from operator_runner.net.serving_certificate import unverified_context
from operator_runner.net.sockets import Listener

GROUP = "shop.example.com"
DEEP = "[" * 100_000


@pytest.fixture
async def server() -> AsyncIterator[Listener]:
    """Serve the conversions of one kind."""
    conversion = Conversion("v1", {("spec", "n"): "spec.size"}, {("spec", "size"): "spec.n"})
    converters = {(GROUP, "Web"): Converter(GVK(GROUP, "v2", "Web"), [conversion], evaluate)}
    context = unverified_context("test", ["127.0.0.1"])
    served = await serve_conversions(converters, 0, context, lambda *_: None)
    yield served
    await served.stop()


async def post(server: Listener, body: bytes, **headers: str) -> tuple[int, str]:
    """Send a body as the API server does; return status and text."""
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    url = f"https://127.0.0.1:{server.port}/convert"
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, data=body, ssl=trust, headers=headers) as response,
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
