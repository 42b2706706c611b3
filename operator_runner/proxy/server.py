"""The proxy between plays and the API server: a loopback HTTPS server, one token for each run.

All clients of a play (kubernetes.core, kubectl, helm, the Python client) use the kubeconfig of
the run. Programs beside the runs may connect by plain HTTP if that is enabled. See docs/proxy.md.

Their requests have no token, as ansible-operator accepts them. Its kubeconfigs name the owner in
the user part of the server's URL, so the owner is the user name of Basic authentication: an owner
reference as JSON, with the owner's namespace, in base64.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import errno
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import structlog
from aiohttp import hdrs, web

from operator_runner.core.async_tasks import WorkerThread
from operator_runner.core.errors import ConfigError
from operator_runner.core.fencing import Fences
from operator_runner.core.model import GVK, Json, ObjectRef, Prune, Watch
from operator_runner.core.resource_states import ResourceStates
from operator_runner.core.settings import Address
from operator_runner.core.texts import truncated
from operator_runner.kube.api import Api
from operator_runner.kube.discovery import Discovery
from operator_runner.kube.session import Connection
from operator_runner.net.certificates import server_context
from operator_runner.net.sockets import Connections, Listener
from operator_runner.proxy.applyset import candidates
from operator_runner.proxy.dry_run.overlay import DryRun
from operator_runner.proxy.forwarding import Forwarder, RequestCallback
from operator_runner.proxy.metadata_client import MetadataClient
from operator_runner.proxy.ownership import Owner
from operator_runner.proxy.ownership_enforcement import Admission
from operator_runner.proxy.permission_log import PermissionLog, PermissionRecorder
from operator_runner.proxy.pruner import ObjectPruner
from operator_runner.proxy.request_info import RequestInfo
from operator_runner.proxy.response_tracker import ResponseObserver, ResponseTracker
from operator_runner.proxy.run_tokens import Grant, Grants, kubeconfig
from operator_runner.proxy.status_errors import StatusError
from operator_runner.reconcile.results import PruneResult

_FIELDS = ("apiVersion", "kind", "name", "uid")


def grant_for_basic_auth(authorization: str, watches: Sequence[Watch]) -> Grant | None:
    """Return a grant for the owner in an Authorization header; None without Basic auth.

    The password and every other authentication scheme are ignored. Raises StatusError
    (400) if the owner cannot be read, or if its kind is not among `watches`.
    """
    if not authorization.lower().startswith("basic "):
        return None
    try:
        user, _, _ = _base64(authorization.partition(" ")[2]).partition(b":")
        owner = _owner(json.loads(_base64(user.decode())))
    except (ValueError, KeyError, TypeError) as error:
        raise StatusError(
            400,
            "invalid owner in the user of http://USER@...: expected base64 of JSON with "
            f"{', '.join(_FIELDS)} and namespace; fix it, or leave it out",
        ) from error
    watch = next((each for each in watches if _serves(each, owner.ref.gvk)), None)
    if watch is None:
        raise StatusError(400, f"watches.yaml does not name the owner's kind: {owner.ref.gvk}")
    # In the version of the watch, by which the resource is known.
    ref = ObjectRef(watch.gvk, owner.ref.namespace, owner.ref.name)
    return Grant(Owner(ref, owner.uid), watch, run_id="")


def _base64(text: str) -> bytes:
    plain = text.strip().rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from error


def _owner(named: Mapping[str, Any]) -> Owner:
    api_version, kind, name, uid = (named[field] for field in _FIELDS)
    namespace = named.get("namespace") or ""
    texts = (api_version, kind, name, uid, namespace)
    if not all(isinstance(text, str) for text in texts) or not all(texts[:4]):
        raise ValueError("each field must be a non-empty string")
    return Owner(ObjectRef(GVK.of(api_version, kind), namespace, name), uid)


def _serves(watch: Watch, gvk: GVK) -> bool:
    return (watch.gvk.group, watch.gvk.kind) == (gvk.group, gvk.kind)


_log = structlog.get_logger(__name__)

_PATH_BYTES = 400
"""Of a path in the log: clients without a token fill it as well."""
_MAX_LINE_BYTES = 64 * 1024
"""Limit of a request line and of a header; label selectors can be long."""
_SHUTDOWN_SECONDS = 1.0
"""Time for in-flight responses at the end; all runs have ended by then."""
_RUN_SHARE = 4
"""A run may use a fourth of the connections at once."""
_QUEUE_TIMEOUT_SECONDS = 10.0
"""Time that a request waits for other requests of its run."""
_LOOPBACK = "127.0.0.1"
_UNAUTHORIZED = (
    "invalid token: use the kubeconfig of the run, which KUBECONFIG and K8S_AUTH_KUBECONFIG "
    "name inside a play and which is valid until the run ends. Other programs in the Pod may "
    "connect by http:// if the operator has the flag --proxy-allow-anonymous"
)


async def set_up_runner(
    handle: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
) -> web.ServerRunner:
    """Return a runner, ready to listen, for a server that forwards the requests of runs."""
    server = web.Server(
        handle,
        # A client that disconnects cancels its request to the API server.
        handler_cancellation=True,
        auto_decompress=False,
        access_log=None,
        max_line_size=_MAX_LINE_BYTES,
        max_field_size=_MAX_LINE_BYTES,
    )
    runner = web.ServerRunner(server, shutdown_timeout=_SHUTDOWN_SECONDS)
    await runner.setup()
    return runner


class Proxy:
    """Gives runs access to the API server with the operator's permissions."""

    def __init__(
        self,
        connection: Connection,
        address: Address,
        observer: ResponseObserver,
        discovery: Discovery,
        folder: Path,
        *,
        inject_owner_ref: bool = True,
        anonymous: Sequence[Watch] | None = None,
        record: Path | None = None,
        fences: Fences | None = None,
        states: ResourceStates | None = None,
        on_request: RequestCallback | None = None,
        on_unserved: Callable[[], None] = lambda: None,
    ) -> None:
        """Serve nothing yet; port 0 selects a free one.

        `folder` is for the proxy's certificate, which kubeconfigs name; it is created if missing
        and removed at the end. It is different for each operator and the same after a restart,
        so that clients can reuse their caches.
        `anonymous` allows plain HTTP without a token, on behalf of resources of these watches;
        None disables it. `record` is the file of `--record-requests`. Raises ConfigError if that
        cannot be used. `fences` permit the writes of runs. `states` keep the members of resources.
        `on_request` is called for each request of a run, `on_unserved` where the API server does
        not serve the resource of one.
        """
        self._address = address
        self._grants = Grants()
        self._granted: dict[str, Grant] = {}
        self._fences = fences or Fences()
        self._worker_thread = WorkerThread()
        tracker = ResponseTracker(observer, discovery, self._worker_thread)
        recorder = None if record is None else PermissionRecorder(PermissionLog(record), discovery)
        metadata_client = MetadataClient(Api(connection))
        self._inject, self._observer = inject_owner_ref, observer
        self.pruner = ObjectPruner(
            Api(connection), discovery, ResourceStates() if states is None else states
        )
        admission = Admission(
            metadata_client, discovery, inject=inject_owner_ref, announce=self._announce
        )
        self._forwarder = Forwarder(
            connection,
            tracker,
            self._worker_thread,
            admission,
            recorder=recorder,
            on_request=on_request,
            on_unserved=on_unserved,
        )
        self._anonymous = anonymous
        self._connections = Connections()
        self._anonymous_requests = asyncio.Semaphore(self._share)
        self._listener: Listener | None = None
        self._authority = folder / "ca.crt"
        self._port = 0

    @property
    def address(self) -> Address:
        """Return where the proxy listens, with the actual port."""
        return Address(self._host, self._port)

    async def start(self) -> None:
        """Listen. Raises ConfigError if the address cannot be used."""
        names = dict.fromkeys([self._host, _LOOPBACK, "::1", "localhost"])
        runner = await set_up_runner(self._handle)
        self._authority.parent.mkdir(mode=0o700, exist_ok=True)
        context = server_context(self._authority, list(names))
        self._listener = Listener(
            runner, context, allow_plaintext=True, connections=self._connections
        )
        try:
            self._listener.open(self._host, self._address.port)
            self._port = self._listener.port
        except OSError as error:
            await self.stop()
            raise ConfigError(_listen_error(self._address, error)) from error
        if self._anonymous is not None:
            _log.warning(
                "Any process in the Pod's network namespace has the operator's permissions",
                flag="--proxy-allow-anonymous",
                port=self._port,
            )

    async def stop(self) -> None:
        """Close the server and its connections."""
        if self._listener is not None:
            await self._listener.stop()
        self._worker_thread.close()
        self._authority.unlink(missing_ok=True)
        with suppress(OSError):  # not empty
            self._authority.parent.rmdir()

    @contextmanager
    def grant(
        self,
        owner: Json,
        watch: Watch,
        run_id: str,
        *,
        of_finalizer: bool = False,
        dry_run: DryRun | None = None,
    ) -> Iterator[str]:
        """Yield the text of a kubeconfig for this run that is valid inside the block.

        Objects that the run creates with it are owned by `owner`; see `Grant` for
        `of_finalizer`. With `dry_run` the run writes nothing, and that receives what it would
        write. The proxy must have been started.
        """
        requests = asyncio.Semaphore(self._share)
        fence = self._fences.of(ObjectRef.of(owner))
        is_pruned = watch.prune is not None and self._inject and run_id and not of_finalizer
        grant = Grant(
            Owner.of(owner),
            watch,
            run_id,
            of_finalizer,
            fence,
            members=self.pruner.begin(owner, is_dry_run=dry_run is not None) if is_pruned else None,
            requests=requests,
            dry_run=dry_run,
        )
        host = f"[{self._host}]" if ":" in self._host else self._host
        self._granted[run_id] = grant
        try:
            with self._grants.issue(grant) as token:
                yield kubeconfig(
                    f"https://{host}:{self._port}",
                    self._authority,
                    grant.owner.ref.namespace or "default",
                    token,
                )
        finally:
            del self._granted[run_id]

    async def prune(self, run_id: str, prune: Prune, incomplete: str) -> PruneResult:
        """Delete what a run in progress no longer wants; see `reconcile.pruning`."""
        grant = self._granted[run_id]
        if grant.members is None:
            return PruneResult()
        if incomplete:
            return PruneResult(skipped=len(candidates(grant.members, prune)))
        result = await self.pruner.prune(grant.members, prune, grant.fence)
        owner = grant.owner.ref
        for ref in result.deleted:
            self._observer.on_write(owner, ref, "", "delete")
        if result.version:
            self._observer.on_write(owner, owner, result.version, "patch")
        return result

    async def orphans(self, run_id: str, prune: Prune) -> Sequence[Json]:
        """Return the objects that a dry run in progress would delete. Raises ApiError."""
        members = self._granted[run_id].members
        return [] if members is None else await self.pruner.preview(members, prune)

    async def _announce(self, grant: Grant, info: RequestInfo) -> None:
        """Record the kind of an object that a run is about to create. Raises ApiError."""
        assert grant.members is not None
        version = await self.pruner.announce(grant.members, info, grant.fence)
        if version:
            self._observer.on_write(grant.owner.ref, grant.owner.ref, version, "patch")

    def granted(self, run_id: str) -> Grant:
        """Return the grant of a run in progress. Raises KeyError for any other."""
        return self._granted[run_id]

    @contextmanager
    def dry_run(
        self, owner: Json, watch: Watch, run_id: str, *, of_finalizer: bool
    ) -> Iterator[tuple[str, DryRun]]:
        """Yield the kubeconfig of a run that writes nothing, and what it would write."""
        result = DryRun()
        with self.grant(
            owner, watch, run_id, of_finalizer=of_finalizer, dry_run=result
        ) as kubeconfig_text:
            yield kubeconfig_text, result

    @property
    def _host(self) -> str:
        # Without a host, other servers listen on all interfaces; this one has local clients only.
        return self._address.host or _LOOPBACK

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        return await self.respond(request, self._authenticate, self._connections)

    async def respond(
        self,
        request: web.BaseRequest,
        authenticate: Callable[[web.BaseRequest], Grant | None],
        connections: Connections,
    ) -> web.StreamResponse:
        """Forward a request to the API server with the grant that `authenticate` returns.

        That raises StatusError. `connections` are those of the server that got the request.
        """
        try:
            grant = authenticate(request)
            async with self._request_slot(grant):
                with connections.serving(request.protocol):
                    return await self._forwarder.forward(request, grant)
        except StatusError as failure:
            log = _log.warning if failure.own else _log.debug
            log(
                "Proxy request failed",
                method=request.method,
                path=truncated(request.path, _PATH_BYTES),
                code=failure.code,
                error=str(failure),
            )
            return failure.response()
        except ConnectionError:
            raise  # the client has disconnected
        except Exception:
            if request.writer.output_size > 0:
                raise  # too late for a Status
            _log.exception("Internal error in the proxy", method=request.method, path=request.path)
            return StatusError(
                500, "internal error; the operator's log has its traceback"
            ).response()

    @property
    def _share(self) -> int:
        return max(self._connections.limit // _RUN_SHARE, 2)

    @asynccontextmanager
    async def _request_slot(self, grant: Grant | None) -> AsyncIterator[None]:
        """Wait until the run may send another request. Raises StatusError after a timeout."""
        requests = self._anonymous_requests
        if grant is not None and grant.requests is not None:
            requests = grant.requests
        try:
            async with asyncio.timeout(_QUEUE_TIMEOUT_SECONDS):
                await requests.acquire()
        except TimeoutError as error:
            reason = f"{self._share} requests of this run are in flight; end some of its watches"
            raise StatusError(429, reason, retry_after=1) from error
        try:
            yield
        finally:
            requests.release()

    def _authenticate(self, request: web.BaseRequest) -> Grant | None:
        """Return the grant of the request; None: it has no owner. Raises StatusError."""
        authorization = request.headers.get(hdrs.AUTHORIZATION, "")
        grant = self._grants.find(authorization)
        if grant is not None:
            if request.transport is not None:
                grant.connections.add(request.transport)
            return grant
        if self._anonymous is None or request.secure:
            raise StatusError(401, _UNAUTHORIZED)
        return grant_for_basic_auth(authorization, self._anonymous)


def _listen_error(wanted: Address, error: OSError) -> str:
    where = f"proxy: cannot listen on {wanted.host}:{wanted.port}"
    if error.errno == errno.EADDRINUSE:
        return f"{where}: port in use; choose a free one with --proxy-port"
    return f"{where}: {error.strerror or error}; choose another port with --proxy-port"
