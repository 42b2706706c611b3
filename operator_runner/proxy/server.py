"""The proxy between plays and the API server: a loopback HTTPS server, one token for each run.

Every client that a play uses (kubernetes.core, kubectl, helm, the Python client) finds it in
the run's kubeconfig. Programs beside the runs are let in by plain HTTP, if at all: see
`anonymous.py`. See docs/proxy.md.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import structlog
from aiohttp import hdrs, web

from operator_runner.core.errors import ConfigError
from operator_runner.core.model import Json, Watch
from operator_runner.core.settings import Address
from operator_runner.kube.api import Api
from operator_runner.kube.discovery import Discovery
from operator_runner.kube.offloop import OffLoop
from operator_runner.kube.session import Connection
from operator_runner.net.connections import Connections
from operator_runner.net.serving_certificate import server_context
from operator_runner.net.sockets import Listener
from operator_runner.proxy.admission import Admission
from operator_runner.proxy.anonymous import claimed_owner
from operator_runner.proxy.existing import ExistingObjects
from operator_runner.proxy.forwarding import Forwarder
from operator_runner.proxy.grants import Grant, Grants, kubeconfig
from operator_runner.proxy.ownership import Owner
from operator_runner.proxy.permission_log import Recording
from operator_runner.proxy.recorder import Recorder
from operator_runner.proxy.response_tracker import Observer, Witness
from operator_runner.proxy.status_errors import Refusal

_log = structlog.get_logger(__name__)

_LONGEST_LINE = 64 * 1024
"""Bytes of a request line or header; label selectors can be long."""
_SHUTDOWN = 1.0
"""Seconds for answers under way at the end; by then all runs are over."""
_SHARE_OF_RUN = 4
"""A run may have a fourth of the connections in use at once."""
_WAIT = 10.0
"""Seconds that a request waits for others of its run."""
_LOOPBACK = "127.0.0.1"
_UNKNOWN = (
    "no valid token; use the kubeconfig of the run, which a play finds in "
    "KUBECONFIG and K8S_AUTH_KUBECONFIG and which is valid as long as the run. Other programs "
    "of the Pod are let in by http:// if the operator has the flag --proxy-allow-anonymous"
)


class Proxy:
    """Lets runs talk to the API server with the operator's rights."""

    def __init__(
        self,
        connection: Connection,
        address: Address,
        observer: Observer,
        discovery: Discovery,
        folder: Path,
        *,
        inject_owner_ref: bool = True,
        anonymous: Sequence[Watch] | None = None,
        record: Path | None = None,
    ) -> None:
        """Nothing is served yet; port 0 takes any free one.

        `folder` takes the proxy's certificate, which kubeconfigs name; it is made if missing, and
        removed at the end. It is one for each operator, and the same after a restart, so that
        clients' caches stay good.
        `anonymous` lets everybody in by plain HTTP, to act for resources of these watches;
        None: nobody. `record` takes which rights requests needed. Raises ConfigError for it.
        """
        self._wanted = address
        self._grants = Grants()
        self._offloop = OffLoop()
        witness = Witness(observer, discovery, self._offloop)
        recorder = None if record is None else Recorder(Recording(record), discovery)
        existing = ExistingObjects(Api(connection))
        admission = Admission(existing, discovery, inject=inject_owner_ref)
        self._forwarder = Forwarder(
            connection, witness, self._offloop, admission, recorder=recorder
        )
        self._anonymous = anonymous
        self._connections = Connections()
        self._anonymous_requests = asyncio.Semaphore(self._share)
        self._listener: Listener | None = None
        self._authority = folder / "ca.crt"
        self._port = 0

    @property
    def address(self) -> Address:
        """Where the proxy listens, with the real port."""
        return Address(self._host, self._port)

    async def start(self) -> None:
        """Listen. Raises ConfigError if the address cannot be had."""
        names = dict.fromkeys([self._host, _LOOPBACK, "::1", "localhost"])
        server = web.Server(
            self._handle,
            # A client that hangs up ends what the API server does for it.
            handler_cancellation=True,
            auto_decompress=False,
            access_log=None,
            max_line_size=_LONGEST_LINE,
            max_field_size=_LONGEST_LINE,
        )
        runner = web.ServerRunner(server, shutdown_timeout=_SHUTDOWN)
        await runner.setup()
        self._authority.parent.mkdir(mode=0o700, exist_ok=True)
        context = server_context(self._authority, list(names))
        self._listener = Listener(runner, context, plain_too=True, connections=self._connections)
        try:
            self._listener.open(self._host, self._wanted.port)
            self._port = self._listener.port
        except OSError as error:
            await self.stop()
            raise ConfigError(_why_not(self._wanted, error)) from error
        if self._anonymous is not None:
            _log.warning(
                "Anybody in the Pod's network namespace has the operator's rights",
                flag="--proxy-allow-anonymous",
                port=self._port,
            )

    async def stop(self) -> None:
        """Close the server and its connections."""
        if self._listener is not None:
            await self._listener.stop()
        self._offloop.close()
        self._authority.unlink(missing_ok=True)
        with suppress(OSError):  # there is something else in it
            self._authority.parent.rmdir()

    @contextmanager
    def grant(
        self, owner: Json, watch: Watch, run_id: str, *, of_finalizer: bool = False
    ) -> Iterator[str]:
        """Return the text of a kubeconfig that is valid inside the block, for this run alone.

        What the run creates through it is owned by `owner`; see `Grant` for `of_finalizer`.
        The proxy must have been started.
        """
        requests = asyncio.Semaphore(self._share)
        grant = Grant(Owner.of(owner), watch, run_id, of_finalizer, requests=requests)
        host = f"[{self._host}]" if ":" in self._host else self._host
        with self._grants.issue(grant) as token:
            yield kubeconfig(
                f"https://{host}:{self._port}",
                self._authority,
                grant.owner.ref.namespace or "default",
                token,
            )

    @property
    def _host(self) -> str:
        # Without a host, other servers listen everywhere; this one is for local clients only.
        return self._wanted.host or _LOOPBACK

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            grant = self._admit(request)
            async with self._turn(grant):
                with self._connections.serving(request.protocol):
                    return await self._forwarder.forward(request, grant)
        except Refusal as refusal:
            log = _log.warning if refusal.own else _log.debug
            log(
                "A request to the proxy failed",
                method=request.method,
                path=request.path,
                code=refusal.code,
                reason=str(refusal),
            )
            return refusal.response()
        except ConnectionError:
            raise  # the client has hung up
        except Exception:
            if request.writer.output_size > 0:
                raise  # too late for a Status
            _log.exception("Internal error in the proxy", method=request.method, path=request.path)
            return Refusal(500, "internal error; the operator's log has its traceback").response()

    @property
    def _share(self) -> int:
        return max(self._connections.limit // _SHARE_OF_RUN, 2)

    @asynccontextmanager
    async def _turn(self, grant: Grant | None) -> AsyncIterator[None]:
        """Wait until the run has few enough requests under way. Raises Refusal after a while."""
        requests = self._anonymous_requests
        if grant is not None and grant.requests is not None:
            requests = grant.requests
        try:
            async with asyncio.timeout(_WAIT):
                await requests.acquire()
        except TimeoutError as error:
            reason = f"{self._share} requests of this run are under way; end some of its watches"
            raise Refusal(429, reason, retry_after=1) from error
        try:
            yield
        finally:
            requests.release()

    def _admit(self, request: web.BaseRequest) -> Grant | None:
        """Return the grant of the request; None: passes without an owner. Raises Refusal."""
        authorization = request.headers.get(hdrs.AUTHORIZATION, "")
        grant = self._grants.find(authorization)
        if grant is not None:
            if request.transport is not None:
                grant.connections.add(request.transport)
            return grant
        if self._anonymous is None or request.secure:
            raise Refusal(401, _UNKNOWN)
        return claimed_owner(authorization, self._anonymous)


def _why_not(wanted: Address, error: OSError) -> str:
    where = f"proxy: cannot listen on {wanted.host}:{wanted.port}"
    if error.errno == errno.EADDRINUSE:
        return f"{where}: another process does; choose a free port with --proxy-port"
    return f"{where}: {error.strerror or error}; choose another port with --proxy-port"
