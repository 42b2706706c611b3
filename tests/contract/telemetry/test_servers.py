"""The servers answer as Prometheus and the kubelet expect, over real sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest
import structlog
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

from operator_runner.core.errors import ConfigError
from operator_runner.core.model import GVK
from operator_runner.kube.authorization import require_permission
from operator_runner.net.sockets import Listener
from operator_runner.telemetry.metrics import Metrics
from operator_runner.telemetry.servers import (
    HealthChecks,
    serve_metrics,
    serve_probes,
    serve_user_metrics,
)
from tests.support.operator import free_port

LOOPBACK = "127.0.0.1"
OPEN = require_permission(None)


@pytest.fixture
async def metrics_server() -> AsyncIterator[Listener]:
    """Serve the metrics of an operator that watches one kind."""
    metrics = Metrics("1.2.3")
    metrics.watching(GVK("cache.example.com", "v1", "Foo"), 1)
    server = await serve_metrics(metrics, LOOPBACK, 0, "--metrics-bind-address", OPEN)
    yield server
    await server.stop()


async def get(
    server: Listener, path: str, headers: dict[str, str] | None = None
) -> tuple[int, str, str]:
    """Fetch a path: status, content type and body."""
    url = f"http://{LOOPBACK}:{server.port}{path}"
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as answer:
        return answer.status, answer.headers["Content-Type"], await answer.text()


async def test_metrics_are_plain_text_by_default(metrics_server: Listener) -> None:
    """The text format parses, its process and garbage collection families included."""
    status, content_type, body = await get(metrics_server, "/metrics")
    names = {family.name for family in parse_text(body)}
    assert status == 200
    assert content_type == "text/plain; version=0.0.4; charset=utf-8"
    assert {"reconciles", "process_resident_memory_bytes", "python_gc_collections"} <= names


async def test_metrics_are_openmetrics_on_request(metrics_server: Listener) -> None:
    """The preferred format of Prometheus can be parsed."""
    accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    _, content_type, body = await get(metrics_server, "/metrics", {"Accept": accept})
    families = parse_openmetrics(body)  # type: ignore[no-untyped-call]
    samples = {sample.name for family in families for sample in family.samples}
    assert content_type.startswith("application/openmetrics-text")
    assert "reconciles_total" in samples


@pytest.mark.parametrize("accept", ["text/plain", "application/openmetrics-text"])
async def test_counters_have_no_series_for_their_creation(
    metrics_server: Listener, accept: str
) -> None:
    """prometheus_client's `_created` would double the number of series."""
    _, _, body = await get(metrics_server, "/metrics", {"Accept": accept})
    assert [line for line in body.splitlines() if "_created{" in line or "_created " in line] == []


async def test_probes_answer_like_a_kubernetes_component() -> None:
    """200 and `ok`, or 500 and each failing check with its reason; checks have own paths."""
    health = HealthChecks()
    health.ready("watches", lambda: "nginxoperators: not listed yet")
    server = await serve_probes(health, LOOPBACK, 0, "--health-probe-bind-address")
    try:
        answers = {
            path: (await get(server, path))[::2]
            for path in (
                *("/healthz", "/healthz/", "/healthz/ping", "/healthz?verbose"),
                *("/readyz", "/readyz/watches", "/readyz/ping", "/readyz?exclude=watches"),
                *("/readyz/typo",),
            )
        }
    finally:
        await server.stop()
    failed = "[-]watches failed: nginxoperators: not listed yet\nreadyz check failed\n"
    assert answers == {
        "/healthz": (200, "ok"),
        "/healthz/": (200, "ok"),
        "/healthz/ping": (200, "ok"),
        "/healthz?verbose": (200, "[+]ping ok\nhealthz check passed\n"),
        "/readyz": (500, "[+]ping ok\n" + failed),
        "/readyz/watches": (500, failed),
        "/readyz/ping": (200, "ok"),
        "/readyz?exclude=watches": (200, "ok"),
        "/readyz/typo": (404, "unknown check: typo\n"),
    }


async def test_a_port_in_use_is_an_error_with_a_hint(metrics_server: Listener) -> None:
    """The message names the flag, the address and another one to try."""
    port = metrics_server.port
    with pytest.raises(ConfigError) as caught:
        await serve_metrics(Metrics("1"), LOOPBACK, port, "--metrics-bind-address", OPEN)
    text = str(caught.value)
    assert text.startswith(f"--metrics-bind-address={LOOPBACK}:{port}: cannot listen (")
    assert "(Address already in use); stop the process that uses the address" in text
    assert f"set another one, such as --metrics-bind-address={LOOPBACK}:" in text


@pytest.mark.parametrize("host", ["absent.invalid", "192.0.2.1"])
async def test_an_address_of_another_machine_is_an_error_with_an_example(host: str) -> None:
    """No process uses it, and another port of it would be as wrong."""
    flag = "--metrics-bind-address"
    with pytest.raises(
        ConfigError, match=rf"; set an address of this machine, such as {flag}=:80$"
    ):
        await serve_metrics(Metrics("1"), host, 80, flag, OPEN)


async def test_any_port_of_every_interface_is_one_port() -> None:
    """The reported port serves IPv4, which is registered as the address of this machine."""
    server = await serve_probes(HealthChecks(), "", 0, "--health-probe-bind-address")
    assert (await get(server, "/healthz"))[0] == 200
    await server.stop()


async def test_a_stopped_server_gives_its_port_back() -> None:
    """The same address can be had again at once."""
    port = free_port()
    for _ in range(2):
        server = await serve_probes(HealthChecks(), LOOPBACK, port, "--health-probe-bind-address")
        assert (await get(server, "/healthz"))[0] == 200
        await server.stop()


async def test_roles_send_metrics_and_get_error_messages() -> None:
    """POST /metrics makes a metric that GET /metrics of the other server shows."""
    metrics = Metrics("1")
    taker = await serve_user_metrics(metrics.user, "localhost", 0)
    assert taker is not None
    url = f"http://{LOOPBACK}:{taker.port}"
    good, bad = ({"name": name, "gauge": {"set": 4}} for name in ("nodes", "no name"))
    answers = []
    try:
        async with aiohttp.ClientSession() as session:
            for request in (
                session.post(f"{url}/metrics", json=good),
                session.post(f"{url}/metrics", json=bad),
                session.post(f"{url}/metrics", data="{"),
                session.get(f"{url}/metrics"),
                session.post(f"{url}/other", json=good),
            ):
                async with request as answer:
                    answers.append((answer.status, await answer.text()))
    finally:
        await taker.stop()
    assert [status for status, _ in answers] == [200, 400, 400, 405, 404]
    assert answers[1][1].startswith("name: 'no name' is not a metric name; ")
    assert "invalid JSON body: " in answers[2][1]
    assert answers[0][1] == ""
    assert answers[3][1] == "Method not allowed\n"
    assert b"\nnodes 4.0\n" in metrics.render()[0]


async def test_a_taken_port_for_user_metrics_stops_nothing(metrics_server: Listener) -> None:
    """Another operator on this machine has it: a warning with a hint, and no server."""
    with structlog.testing.capture_logs() as logs:
        port = metrics_server.port
        assert await serve_user_metrics(Metrics("1").user, LOOPBACK, port) is None
    (line,) = logs
    assert line["log_level"] == "warning"
    assert f"--user-metrics-bind-address={LOOPBACK}:{port}: cannot listen" in line["error"]
    assert "or set another one, such as --user-metrics-bind-address=127.0.0.1:" in line["error"]
