"""Keeps the operator's own certificates fresh, and registered in the CRDs, while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Protocol

import structlog

from operator_runner.conversion.authority import Credentials
from operator_runner.conversion.certificates import Serving
from operator_runner.conversion.registration import (
    Service,
    Target,
    injector,
    knows,
    occupant,
    patch,
)
from operator_runner.conversion.schemas import forgotten
from operator_runner.conversion.shared import Api
from operator_runner.core.errors import ApiError, Conflict, Forbidden, NotFound
from operator_runner.core.model import GVK, Conversion, Json

_MERGE_PATCH = "application/merge-patch+json"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_SOON = 1.0
"""Seconds between two looks while something is missing."""

_log = structlog.get_logger(__name__)


class Source(Protocol):
    """Where credentials come from."""

    async def current(self, names: Sequence[str], *, known: bool) -> Credentials:
        """Return what is to be used now; raises ApiError."""


class Registrar:
    """Brings certificates to the server and their authorities to the CRDs."""

    def __init__(
        self,
        api: Api,
        source: Source,
        serving: Serving,
        kinds: Mapping[GVK, Sequence[Conversion]],
        *,
        look: timedelta,
        crd_name: Callable[[GVK], Awaitable[str]],
    ) -> None:
        """Look again after `look`: somebody may apply the CRD, another replica may renew.

        `crd_name` finds the CRD of a kind; it raises ApiError if there is none.
        """
        self._api = api
        self._source = source
        self._serving = serving
        self._kinds = kinds
        self._look_again = look.total_seconds()
        self._crd_name = crd_name
        self._known = False
        self._problem: str | None = "the webhook is not registered yet"
        self._told: set[str] = set()

    def missing(self) -> str | None:
        """Return why the API server cannot be answered, None if it can."""
        return self._problem

    async def run(self, target: Target) -> None:
        """Register the webhook at `target`, and keep it registered, until cancelled."""
        while True:
            try:
                self._problem = await self._look(target)
            except Conflict:
                self._problem = self._problem and "the webhook is being registered"
            except ApiError as error:
                self._problem = _explain(error)
                self._tell(self._problem)
            await asyncio.sleep(min(_SOON, self._look_again) if self._problem else self._look_again)

    async def _look(self, target: Target) -> str | None:
        credentials = await self._source.current([target.server_name], known=self._known)
        self._serving.load(credentials.certificate, credentials.key)
        known, problems = [], []
        for gvk, conversions in self._kinds.items():
            crd = await self._api.request("GET", f"{_CRDS}/{await self._crd_name(gvk)}")
            for line in forgotten(crd, gvk.version, conversions):
                self._tell(line, "A field gets lost in conversions")
            if problem := injector(crd):
                problems.append(problem)
            elif (other := occupant(crd, target)) and await self._exists(other):
                self._tell(
                    f"{crd['metadata']['name']} names the Service {other.namespace}/{other.name}, "
                    "which goes on converting; to take its place name it by --webhook-service, or "
                    "an address of this machine by --webhook-host"
                )
            else:
                crd = await self._register(crd, target, credentials)
            known.append(knows(crd, credentials.newest))
        self._known = all(known)
        for problem in problems:
            self._tell(problem)
        return "; ".join(problems) or None

    async def _register(self, crd: Json, target: Target, credentials: Credentials) -> Json:
        change = patch(crd, target, credentials.authorities)
        if change is None:
            return crd
        name = crd["metadata"]["name"]
        crd = await self._api.request(
            "PATCH", f"{_CRDS}/{name}", body=change, content_type=_MERGE_PATCH
        )
        _log.info("The conversion webhook is registered", crd=name, at=str(target))
        return crd

    async def _exists(self, service: Service) -> bool:
        path = f"/api/v1/namespaces/{service.namespace}/services/{service.name}"
        try:
            await self._api.request("GET", path)
        except NotFound:
            return False
        except Forbidden:
            return True  # who may not look takes nothing away
        return True

    def _tell(
        self, problem: str, message: str = "The conversion webhook cannot be registered"
    ) -> None:
        """Log a problem once."""
        if problem not in self._told:
            self._told.add(problem)
            _log.warning(message, reason=problem)


def _explain(error: ApiError) -> str:
    if isinstance(error, Forbidden):
        return f"{error}; grant what docs/conversion.md lists under Permissions"
    return str(error)
