"""Who may use the proxy: one random token for each run, void as soon as the run is over."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from asyncio import BaseTransport
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from weakref import WeakSet

import yaml

from operator_runner.core.model import Watch
from operator_runner.net.connections import abort
from operator_runner.proxy.ownership import Owner

_NAME = "operator-runner"
"""Cluster, context and user of every kubeconfig. Clients key their caches by server and user,
so these are the same for all runs, and all runs share one cache."""
_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
"""By libyaml where it is there, in a tenth of the time."""


@dataclass(frozen=True, slots=True)
class Grant:
    """The right of one run to use the proxy, and the connections that it opened with it.

    `run_id` is empty for a program that names an owner without being its run. `of_finalizer` is
    the run of a finalizer's own role or playbook, whose records are to outlive the owner.
    """

    owner: Owner
    watch: Watch
    run_id: str
    of_finalizer: bool = False
    own: set[str] = field(default_factory=set, compare=False)
    """The uids of objects that the run has created, or that are known to belong to the owner."""
    connections: WeakSet[BaseTransport] = field(default_factory=WeakSet, repr=False)
    requests: asyncio.Semaphore | None = field(default=None, repr=False, compare=False)
    """How many of the run's requests may be under way; None: it shares with those of no run."""
    decoding: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False, compare=False)
    """Held while a large body of the run is decoded, so that others get their turns between."""


class Grants:
    """The tokens that are valid now."""

    def __init__(self) -> None:
        # By digest: how long a look-up takes tells nothing about the tokens.
        self._grants: dict[bytes, Grant] = {}

    @contextmanager
    def issue(self, grant: Grant) -> Iterator[str]:
        """Return a token that stands for `grant` inside the block.

        Afterwards connections that were opened with it are closed.
        """
        token = secrets.token_urlsafe(32)
        digest = _digest(token)
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
        return self._grants.get(_digest(token.strip()))


def kubeconfig(server: str, authority: Path, namespace: str, token: str) -> str:
    """Return the text of a kubeconfig for `server`, whose certificate is signed by `authority`."""
    cluster = {
        "server": server,
        "certificate-authority": str(authority),
        # Or the Python client goes to loopback by the Pod's HTTPS_PROXY.
        "proxy-url": "",
    }
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": _NAME,
        "clusters": [{"name": _NAME, "cluster": cluster}],
        "users": [{"name": _NAME, "user": {"token": token}}],
        "contexts": [
            {
                "name": _NAME,
                "context": {"cluster": _NAME, "user": _NAME, "namespace": namespace},
            }
        ],
    }
    text: str = yaml.dump(content, Dumper=_DUMPER, sort_keys=False)
    return text


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogatepass")).digest()
