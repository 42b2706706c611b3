"""Access of runs to the API: what the proxy grants, and what is known of own writes meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from operator_runner.kube.proxy import Proxy
from operator_runner.model import Json, ObjectRef, Watch
from operator_runner.triggers.dependents import Dependents


class OwnedAccess:
    """Access through the proxy, with the events of what a run owns held back meanwhile."""

    def __init__(self, proxy: Proxy, dependents: Dependents) -> None:
        """Join the two, which do not know each other."""
        self._proxy = proxy
        self._dependents = dependents

    @contextmanager
    def grant(self, owner: Json, watch: Watch, run_id: str, *, of_finalizer: bool) -> Iterator[str]:
        """See `reconcile.ports.Access`."""
        with (
            self._dependents.during(ObjectRef.of(owner)),
            self._proxy.grant(owner, watch, run_id, of_finalizer=of_finalizer) as kubeconfig,
        ):
            yield kubeconfig
