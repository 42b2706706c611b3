"""Access to the proxy: one random bearer token for each run, valid until the run ends."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from asyncio import BaseTransport
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from weakref import WeakSet

from operator_runner.core.async_tasks import WorkerThread
from operator_runner.core.fencing import UNFENCED, Fence
from operator_runner.core.kubeconfig import render_kubeconfig
from operator_runner.core.model import Json, Watch
from operator_runner.net.sockets import abort
from operator_runner.proxy.applyset import RunMembers
from operator_runner.proxy.bodies import is_quick
from operator_runner.proxy.dry_run.overlay import DryRun
from operator_runner.proxy.field_changes import SeenObjects
from operator_runner.proxy.ownership import Owner

_T = TypeVar("_T")

_NAME = "operator-runner"
"""Cluster, context and user of every kubeconfig. Clients key their caches by server and user,
so these are the same for all runs, and all runs share one cache."""


@dataclass(frozen=True, slots=True)
class Grant:
    """The access of one run to the proxy, and the connections that it has opened.

    `run_id` is empty for a program beside the runs that names an owner. `of_finalizer` is True
    for the run of a finalizer, whose records outlive the owner.
    """

    owner: Owner
    watch: Watch
    run_id: str
    of_finalizer: bool = False
    fence: Fence = field(default=UNFENCED, repr=False, compare=False)
    """Permits the writes of the run; those of programs beside the runs are not fenced."""
    owned_uids: set[str] = field(default_factory=set, compare=False)
    """The uids of objects that the run has created, or that belong to the owner; none is empty."""
    seen: SeenObjects = field(default_factory=SeenObjects, repr=False, compare=False)
    """Objects that the run has read and written, to find the fields that its writes change."""
    last_read: dict[str, Json] = field(default_factory=dict, repr=False, compare=False)
    """Metadata of the object that the run has read last, by its path; empty if it is missing."""
    pruned_paths: set[str] = field(default_factory=set, repr=False, compare=False)
    """Paths of the lists in which values that are nested too deep were emptied for the run."""
    members: RunMembers | None = field(default=None, repr=False, compare=False)
    """What the run wants of the members of its resource; None without `prune`."""
    connections: WeakSet[BaseTransport] = field(default_factory=WeakSet, repr=False)
    requests: asyncio.Semaphore | None = field(default=None, repr=False, compare=False)
    """Limits the run's concurrent requests; None: shared with the requests of no run."""
    dry_run: DryRun | None = field(default=None, repr=False, compare=False)
    """Records what the run would write; None unless the run is a dry run."""
    decoding: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False, compare=False)
    """Held while a large body of the run is decoded, so that other runs are not starved."""

    async def decoded(
        self, thread: WorkerThread, kind: str, size: int, function: Callable[[], _T]
    ) -> _T:
        """Decode or encode a body of this media type and size, in the thread if it is large."""
        if is_quick(kind, size):
            return function()
        async with self.decoding:
            return await thread.call(function)


class Grants:
    """The valid tokens."""

    def __init__(self) -> None:
        # By digest: the duration of a look-up reveals nothing about the tokens.
        self._grants: dict[bytes, Grant] = {}

    @contextmanager
    def issue(self, grant: Grant) -> Iterator[str]:
        """Yield a token that is valid inside the block; then close the connections that used it."""
        token = secrets.token_urlsafe(32)
        digest = token_digest(token)
        self._grants[digest] = grant
        try:
            yield token
        finally:
            del self._grants[digest]
            for connection in list(grant.connections):
                abort(connection)

    def find(self, authorization: str) -> Grant | None:
        """Return the grant of an Authorization header with a valid bearer token, else None."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer":
            return None
        return self._grants.get(token_digest(token.strip()))


def kubeconfig(server: str, authority: Path, namespace: str, token: str) -> str:
    """Return a kubeconfig for `server`, whose certificate `authority` has signed."""
    cluster = {
        "server": server,
        "certificate-authority": str(authority),
        # Without it, the Python client would use the Pod's HTTPS_PROXY for loopback.
        "proxy-url": "",
    }
    return render_kubeconfig(_NAME, cluster=cluster, user={"token": token}, namespace=namespace)


def token_digest(token: str) -> bytes:
    """Return what is kept of a token in memory."""
    return hashlib.sha256(token.encode(errors="surrogatepass")).digest()
