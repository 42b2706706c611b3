"""HTTP servers for metrics, the API and probes, in the operator's event loop.

The named checks behind /healthz and /readyz, and their answers, need no HTTP.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TypeAlias

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from operator_runner.core.errors import ConfigError
from operator_runner.net.request_bodies import BodyReceiver
from operator_runner.net.sockets import Connections, Listener, small_share
from operator_runner.telemetry.metrics import Metrics
from operator_runner.telemetry.runs.api import RunsApi
from operator_runner.telemetry.usermetrics import UserMetricError, UserMetrics

Check: TypeAlias = Callable[[], str | None]
"""Returns None if all is well, else a sentence that describes the problem. Must not block."""


@dataclass(frozen=True, slots=True)
class HealthReport:
    """All results of one probe; `probe` is `healthz` or `readyz`.

    `problems` has each check by name, with None if it passed.
    """

    probe: str
    problems: Mapping[str, str | None]

    @property
    def passed(self) -> bool:
        """True if no check failed."""
        return not any(problem is not None for problem in self.problems.values())

    def text(self, verbose: bool = False) -> str:
        """`ok`, or a line for each check (`verbose` or failed) and one with the verdict.

        The lines are those of Kubernetes' own probes.
        """
        if self.passed and not verbose:
            return "ok"
        lines = [
            f"[+]{name} ok" if problem is None else f"[-]{name} failed: {problem}"
            for name, problem in self.problems.items()
        ]
        verdict = f"{self.probe} check {'passed' if self.passed else 'failed'}"
        return "\n".join([*lines, verdict, ""])


class HealthChecks:
    """Checks that the parts of the operator register, called at each probe.

    `ping` always exists and always passes: the response itself is the proof. The server runs in
    the operator's event loop on purpose, so that a loop that hangs cannot answer and the kubelet
    restarts the process.
    """

    def __init__(self) -> None:
        self._live: dict[str, Check] = {"ping": lambda: None}
        self._ready: dict[str, Check] = {"ping": lambda: None}

    def live(self, name: str, check: Check) -> None:
        """Add a check to /healthz; one that fails gets the process restarted."""
        self._live[name] = check

    def ready(self, name: str, check: Check) -> None:
        """Add a check to /readyz; one that fails takes the Pod out of Services and rollouts."""
        self._ready[name] = check

    def healthz(self, only: str | None = None, exclude: Collection[str] = ()) -> HealthReport:
        """Run the liveness checks, or one. Raises KeyError if no check is named `only`."""
        return _report("healthz", self._live, only, exclude)

    def readyz(self, only: str | None = None, exclude: Collection[str] = ()) -> HealthReport:
        """Run the readiness checks, or one. Raises KeyError if no check is named `only`."""
        return _report("readyz", self._ready, only, exclude)


def _report(
    probe: str, checks: Mapping[str, Check], only: str | None, exclude: Collection[str]
) -> HealthReport:
    problems: dict[str, str | None] = {}
    for name, check in (checks if only is None else {only: checks[only]}).items():
        try:
            if name not in exclude:
                problems[name] = check()
        except Exception as error:  # noqa: BLE001  a check that breaks is a check that fails
            problems[name] = f"the check raised an error: {type(error).__name__}: {error}"
    return HealthReport(probe, problems)


_log = structlog.get_logger(__name__)

_Probe: TypeAlias = Callable[[str | None, Collection[str]], HealthReport]

# A scrape or probe takes milliseconds; a slower client must not hold up the shutdown.
_SHUTDOWN_SECONDS = 1.0
_DROP_BODY: web.RequestKey[Callable[[], None]] = web.RequestKey("drop_body")
_MAX_METRIC_BYTES = 64 * 1024
"""Bytes of a request of osdk_metric."""


async def serve_metrics(
    metrics: Metrics,
    host: str,
    port: int,
    flag: str,
    check: Middleware,
    *,
    context: ssl.SSLContext | None = None,
    runs: RunsApi | None = None,
) -> Listener:
    """Answer GET /metrics, and with `runs` the API beside it.

    `check` rejects unauthorized requests; with a TLS `context` only HTTPS is served. `flag` names
    the setting in errors; raises ConfigError as `serve`.
    """

    async def answer(request: web.Request) -> web.Response:
        body, content_type = metrics.render(request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": content_type})

    app = web.Application(middlewares=[check])
    app.router.add_get("/metrics", answer)
    if runs is not None:
        runs.add_routes(app)
    return await serve(app, host, port, flag, context)


async def serve_user_metrics(user: UserMetrics, host: str, port: int) -> Listener | None:
    """Answer POST /metrics of roles (osdk_metric): 200, or 400 with the reason.

    The address should be on loopback, since all clients that can connect can create metrics. If it
    is in use (by another operator on this machine), a warning is logged and nothing is served:
    most roles send no metrics.
    """

    async def answer(request: web.Request) -> web.Response:
        if request.method != "POST":
            return web.Response(status=405, text="Method not allowed\n", headers={"Allow": "POST"})
        try:
            user.apply(await request.read())
        except UserMetricError as error:
            _log.info("Rejected a metric of a role", error=str(error))
            return web.Response(status=400, text=f"{error}\n")
        return web.Response()

    app = web.Application(client_max_size=_MAX_METRIC_BYTES)
    app.router.add_route("*", "/metrics", answer)
    try:
        return await serve(app, host, port, "--user-metrics-bind-address")
    except ConfigError as error:
        _log.warning("Roles cannot send metrics", error=str(error))
        return None


async def serve_probes(health: HealthChecks, host: str, port: int, flag: str) -> Listener:
    """Answer /healthz, /readyz and one path below them for each check. Errors as `serve`."""
    app = web.Application()
    for path, probe in (("/healthz", health.healthz), ("/readyz", health.readyz)):
        answer = _probe_handler(probe)
        app.router.add_get(path, answer)
        app.router.add_get(f"{path}/", answer)
        app.router.add_get(f"{path}/{{check}}", answer)
    return await serve(app, host, port, flag)


async def serve(
    app: web.Application,
    host: str,
    port: int,
    flag: str,
    context: ssl.SSLContext | None = None,
    *,
    connections: Connections | None = None,
) -> Listener:
    """Listen on `host` (empty: every interface) and `port` (0: any free one).

    With a TLS `context` only HTTPS is served. `connections` bounds what is open; by default there
    are few.

    Raises ConfigError, with `flag` and a hint in it, if the address cannot be used.
    """
    connections = connections or Connections(small_share())
    app.middlewares.insert(0, _complete(connections))
    app.on_response_prepare.append(_drop_body)
    runner = web.AppRunner(
        app,
        access_log=None,
        shutdown_timeout=_SHUTDOWN_SECONDS,
        # A compressed body could have any size.
        auto_decompress=False,
    )
    await runner.setup()
    listener = Listener(runner, context, connections=connections)
    try:
        # As Go does: of a name the IPv4 address. Where IPv6 is off, ::1 has a name all the same.
        listener.open("127.0.0.1" if host == "localhost" else host, port)
    except OSError as error:
        await listener.stop()
        problem = f"{flag}={host}:{port}: cannot listen ({_reason(error)})"
        raise ConfigError(f"{problem}; {_solution(error, flag, host, port)}") from error
    return listener


def _complete(connections: Connections) -> Middleware:
    """Return a middleware that serves requests whose body has come, within its deadline."""
    bodies = BodyReceiver()

    @web.middleware
    async def complete(request: web.Request, handler: Handler) -> web.StreamResponse:
        async with AsyncExitStack() as stack:
            try:
                if request.body_exists:
                    request[_DROP_BODY] = await stack.enter_async_context(bodies.received(request))
            except web.RequestPayloadError as error:
                return web.Response(status=400, text=f"malformed body: {error}\n")
            except TimeoutError:
                return web.Response(status=408, text="too slow: other requests need the memory\n")
            stack.enter_context(connections.serving(request.protocol))
            return await handler(request)

    return complete


async def _drop_body(request: web.Request, _response: web.StreamResponse) -> None:
    """Drop the body of a request whose response begins: a streamed one may take hours."""
    if (drop := request.get(_DROP_BODY)) is not None:
        drop()


def _probe_handler(probe: _Probe) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(request: web.Request) -> web.Response:
        only = request.match_info.get("check")
        try:
            report = probe(only, request.query.getall("exclude", []))
        except KeyError:
            return web.Response(status=404, text=f"unknown check: {only}\n")
        text = report.text(verbose="verbose" in request.query)
        headers = {"Cache-Control": "no-cache, private", "X-Content-Type-Options": "nosniff"}
        return web.Response(status=200 if report.passed else 500, text=text, headers=headers)

    return answer


def _reason(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return f"unknown host: {error.strerror}"
    return os.strerror(error.errno) if error.errno else str(error)


def _solution(error: OSError, flag: str, host: str, port: int) -> str:
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return f"set an address of this machine, such as {flag}=:{port}"
    example = f"such as {flag}={host}:{_elsewhere(port)}"
    if error.errno == errno.EADDRINUSE:
        return f"stop the process that uses the address, or set another one, {example}"
    return f"set another address, {example}"


def _elsewhere(port: int) -> int:
    return port + 1 if 1024 <= port < 65535 else 18080  # noqa: PLR2004
