"""Metrics over TLS, and for those alone whom the API server allows it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from operator_runner.kube.api import Api
from operator_runner.kube.authorization import Reviews, require_permission
from operator_runner.kube.session import connect
from operator_runner.net.certificates import unverified_context
from operator_runner.net.sockets import Listener
from operator_runner.telemetry.metrics import Metrics
from operator_runner.telemetry.runs.access import TOKEN_HEADER
from operator_runner.telemetry.servers import serve_metrics
from tests.support.kubectl import Kubectl

LOOPBACK = "127.0.0.1"


@pytest.fixture
async def api(control_plane: Path) -> AsyncIterator[Api]:
    """Connect to the real API server as the operator does."""
    connection = await connect(control_plane, user_agent="operator-runner/test")
    yield Api(connection)
    await connection.close()


async def serve(api: Api, *, require_rbac: bool) -> Listener:
    check = require_permission(Reviews(api) if require_rbac else None)
    context = unverified_context("operator-runner metrics", ["localhost"])
    return await serve_metrics(
        Metrics("1"), LOOPBACK, 0, "--metrics-bind-address", check, context=context
    )


async def scrape(server: Listener, token: str = "") -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    url = f"https://{LOOPBACK}:{server.port}/metrics"
    # As Prometheus with insecure_skip_verify: the certificate signs itself.
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.get(url, ssl=False) as answer,
    ):
        return answer.status, await answer.text()


async def test_metrics_are_served_over_tls(api: Api) -> None:
    """Metrics are encrypted with a certificate for the operator's life; nothing is in the clear."""
    server = await serve(api, require_rbac=False)
    try:
        status, text = await scrape(server)
        assert (status, "reconciles_total" in text) == (200, True)
        pem = await asyncio.to_thread(ssl.get_server_certificate, (LOOPBACK, server.port))
        assert pem.startswith("-----BEGIN CERTIFICATE-----")
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.ClientError):
                await session.get(f"http://{LOOPBACK}:{server.port}/metrics")
    finally:
        await server.stop()


async def test_only_authorized_accounts_read_metrics(api: Api, kubectl: Kubectl) -> None:
    """A service account that may get /metrics reads them; others and anonymous do not."""
    reader = f"reader-{kubectl.namespace}"
    kubectl("create", "clusterrole", reader, "--verb=get", "--non-resource-url=/metrics")
    for name in ("allowed", "denied"):
        kubectl("create", "serviceaccount", name)
    account = f"{kubectl.namespace}:allowed"
    to = (f"--clusterrole={reader}", f"--serviceaccount={account}")
    kubectl("create", "clusterrolebinding", reader, *to)
    kubectl.wait_for_permission(f"system:serviceaccount:{account}", "get", "/metrics")
    allowed, denied = (kubectl.token(name) for name in ("allowed", "denied"))
    server = await serve(api, require_rbac=True)
    try:
        for _ in range(2):
            status, text = await scrape(server, allowed)
            assert (status, "reconciles_total" in text) == (200, True)
        who = f"system:serviceaccount:{kubectl.namespace}:denied"
        assert await scrape(server, denied) == (403, f"Authorization denied for user {who}\n")
        assert await scrape(server, "invented") == (401, "Unauthorized\n")
        assert await scrape(server) == (401, "Unauthorized\n")
    finally:
        await server.stop()
        kubectl("delete", "clusterrole,clusterrolebinding", reader)


async def test_a_token_of_any_bytes_is_denied(api: Api) -> None:
    """Headers are decoded with surrogates; a traceback for each request would fill the log."""
    server = await serve(api, require_rbac=True)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        for path, header in (
            ("/metrics", "Authorization: Bearer "),
            ("/api/v1", "Authorization: Bearer "),
            ("/api/v1", f"{TOKEN_HEADER}: "),
        ):
            reader, writer = await asyncio.open_connection(LOOPBACK, server.port, ssl=context)
            request = f"GET {path} HTTP/1.1\r\nHost: manager\r\n{header}".encode()
            writer.write(request + b"\xff\xfe\r\n\r\n")
            status = await reader.readline()
            writer.transport.abort()
            assert status.split()[1] == b"401", (path, header)
    finally:
        await server.stop()
