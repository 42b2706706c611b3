"""Keep the operator's own certificates renewed, and registered in the CRDs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta

import structlog

from operator_runner.conversion.certificates import ServingCertificate
from operator_runner.conversion.registration import (
    Service,
    Target,
    ca_injector_problem,
    existing_service,
    is_trusted,
    patch,
)
from operator_runner.conversion.schemas import unmapped_fields
from operator_runner.core.deduplication import Deduplicator
from operator_runner.core.errors import ApiError, Conflict, Forbidden, NotFound
from operator_runner.core.model import GVK, Conversion, Json
from operator_runner.kube.api import MERGE_PATCH, Api
from operator_runner.kube.certificate_sources import CertificateSource
from operator_runner.net.certificate_authority import CertificateBundle

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_MAX_WARNINGS = 1000
"""Warnings that are not repeated."""
_RETRY_SECONDS = 1.0
"""Between two checks while the webhook is not registered."""

_log = structlog.get_logger(__name__)


async def read_crd(api: Api, name: str) -> Json:
    """Return a CRD. Raises ApiError."""
    return await api.request("GET", f"{_CRDS}/{name}")


class Registrar:
    """Loads certificates into the server and registers their CAs in the CRDs."""

    def __init__(
        self,
        api: Api,
        source: CertificateSource,
        serving: ServingCertificate,
        kinds: Mapping[GVK, Sequence[Conversion]],
        *,
        check_interval: timedelta,
        crd_name: Callable[[GVK], Awaitable[str]],
        on_crd: Callable[[GVK, Json], None],
    ) -> None:
        """Check every `check_interval`: CRDs are applied again, other replicas renew certificates.

        `crd_name` returns the CRD of a kind; it raises ApiError if it does not exist. `on_crd` is
        called with each CRD that is read.
        """
        self._api = api
        self._source = source
        self._serving = serving
        self._kinds = kinds
        self._check_seconds = check_interval.total_seconds()
        self._crd_name = crd_name
        self._on_crd = on_crd
        self._is_published = False
        self._problem: str | None = "the webhook is not registered yet"
        self._warnings = Deduplicator(_MAX_WARNINGS)

    def missing(self) -> str | None:
        """Return why requests cannot be served, None if they can."""
        return self._problem

    async def run(self, target: Target) -> None:
        """Register the webhook at `target` and keep it registered until cancelled."""
        while True:
            try:
                self._problem = await self._check(target)
            except Conflict:
                self._problem = self._problem and "the webhook is being registered"
            except ApiError as error:
                self._problem = _explain(error)
                self._warn_once(self._problem)
            await asyncio.sleep(
                min(_RETRY_SECONDS, self._check_seconds) if self._problem else self._check_seconds
            )

    async def _check(self, target: Target) -> str | None:
        credentials = await self._source.current(
            [target.server_name], is_published=self._is_published
        )
        self._serving.load(credentials.certificate, credentials.key)
        published, problems = [], []
        for gvk, conversions in self._kinds.items():
            crd = await read_crd(self._api, await self._crd_name(gvk))
            self._on_crd(gvk, crd)
            for line in unmapped_fields(crd, gvk.version, conversions):
                self._warn_once(line, "Field is lost in conversions")
            if problem := ca_injector_problem(crd):
                problems.append(problem)
            elif (other := existing_service(crd, target)) and await self._exists(other):
                self._warn_once(
                    f"{crd['metadata']['name']} names the Service {other.namespace}/{other.name}, "
                    "which still converts; to replace it, set --webhook-service to it or "
                    "--webhook-host to an address of this machine"
                )
            else:
                crd = await self._register(crd, target, credentials)
            published.append(is_trusted(crd, credentials.newest))
        self._is_published = all(published)
        for problem in problems:
            self._warn_once(problem)
        return "; ".join(problems) or None

    async def _register(self, crd: Json, target: Target, credentials: CertificateBundle) -> Json:
        if patch(crd, target, credentials.authorities) is None:
            return crd
        # Another replica may have registered newer certificates since these were read. Those read
        # now are not older than the CRD, whose resourceVersion the patch has.
        newest = await self._source.current([target.server_name], is_published=self._is_published)
        self._serving.load(newest.certificate, newest.key)
        change = patch(crd, target, newest.authorities)
        if change is None:
            return crd
        name = crd["metadata"]["name"]
        crd = await self._api.request(
            "PATCH", f"{_CRDS}/{name}", body=change, content_type=MERGE_PATCH
        )
        _log.info("Registered conversion webhook", crd=name, target=str(target))
        return crd

    async def _exists(self, service: Service) -> bool:
        path = f"/api/v1/namespaces/{service.namespace}/services/{service.name}"
        try:
            await self._api.request("GET", path)
        except NotFound:
            return False
        except Forbidden:
            return True  # assume so without permission to read it
        return True

    def _warn_once(self, problem: str, message: str = "Cannot register conversion webhook") -> None:
        """Log a problem once."""
        if self._warnings.is_new(problem):
            _log.warning(message, error=problem)


def _explain(error: ApiError) -> str:
    if isinstance(error, Forbidden):
        return f"{error}; grant the permissions in docs/conversion.md"
    return str(error)
