"""Keep the operator's own certificates renewed, and registered in the CRDs.

A registration is the webhook's address and its CA bundle. The API server prunes fields that are not
in a version's schema, so fields that exist in one version only and that no conversion names are
reported: a conversion to that version and back would lose them.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias

import structlog

from operator_runner.conversion.certificates import ServingCertificate
from operator_runner.conversion.preserved_fields import text
from operator_runner.conversion.server import PATH
from operator_runner.core.deduplication import Deduplicator
from operator_runner.core.errors import ApiError, Conflict, Forbidden, NotFound
from operator_runner.core.model import GVK, Conversion, FieldPath, Json
from operator_runner.kube.api import MERGE_PATCH, Api
from operator_runner.kube.certificate_sources import CertificateSource
from operator_runner.net.certificates import CertificateBundle

_NO_FIELDS = frozenset({"apiVersion", "kind", "metadata"})


def unmapped_fields(crd: Json, hub: str, conversions: Sequence[Conversion]) -> Iterator[str]:
    """Yield a message for each field that would be lost, with the line to add."""
    schemas = {each["name"]: _schema(each) for each in crd["spec"]["versions"]}
    for conversion in conversions:
        if hub not in schemas or conversion.version not in schemas:
            continue
        named = (*conversion.to_hub, *conversion.from_hub)
        ways = ((hub, conversion.version, "toHub"), (conversion.version, hub, "fromHub"))
        for version, other, key in ways:
            for path in _missing(schemas[version], schemas[other], ()):
                if not any(_overlap(path, name) for name in named):
                    yield (
                        f"{text(path)} of {version} is lost in {other}: name it in {key} of "
                        f"the conversion of {conversion.version}, as `{text(path)}: null` if "
                        "it has no counterpart"
                    )


def _schema(version: Json) -> Json:
    schema: Json = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    properties = schema.get("properties") or {}
    fields = {name: each for name, each in properties.items() if name not in _NO_FIELDS}
    return schema | {"properties": fields}


def _missing(schema: Json, other: Json, above: FieldPath) -> Iterator[FieldPath]:
    """Yield the topmost fields of a schema that are missing in another one."""
    if other.get("x-kubernetes-preserve-unknown-fields") or other.get("additionalProperties"):
        return
    others = other.get("properties") or {}
    for name, inner in (schema.get("properties") or {}).items():
        if name in others:
            yield from _missing(inner, others[name], (*above, name))
        else:
            yield (*above, name)


def _overlap(one: FieldPath, other: FieldPath) -> bool:
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]


_INJECTORS = (
    "cert-manager.io/inject-ca-from",
    "cert-manager.io/inject-ca-from-secret",
    "cert-manager.io/inject-apiserver-ca",
)


@dataclass(frozen=True, slots=True)
class Service:
    """A Service in front of the operator's Pods."""

    namespace: str
    name: str
    port: int = 443

    @property
    def server_name(self) -> str:
        """Return the name that the API server expects in the certificate."""
        return f"{self.name}.{self.namespace}.svc"

    def client_config(self) -> Json:
        """Return the clientConfig of the CRD for this target."""
        service = {"namespace": self.namespace, "name": self.name, "path": PATH, "port": self.port}
        return {"service": service, "url": None}

    def __str__(self) -> str:
        """Return the Service as `--webhook-service` takes it."""
        return f"{self.namespace}/{self.name}:{self.port}"


@dataclass(frozen=True, slots=True)
class Url:
    """An address of this machine; `replaces_service` allows to replace a Service in the CRD."""

    host: str
    port: int
    replaces_service: bool = False

    @property
    def server_name(self) -> str:
        """Return the name that the API server expects in the certificate."""
        return self.host

    def client_config(self) -> Json:
        """Return the clientConfig of the CRD for this target."""
        return {"service": None, "url": str(self)}

    def __str__(self) -> str:
        """Return the address to which the API server sends conversions."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"https://{host}:{self.port}{PATH}"


Target: TypeAlias = Service | Url


def ca_injector_problem(crd: Json) -> str | None:
    """Return why another program manages the CRD's CA bundle, None if none does."""
    name, annotations = crd["metadata"]["name"], crd["metadata"].get("annotations") or {}
    found = next(filter(annotations.get, _INJECTORS), None)
    return found and (
        f"{name} has the annotation {found}, so cert-manager manages its CA bundle: mount the "
        "Secret of that Certificate in --webhook-cert-dir, or remove the annotation"
    )


def existing_service(crd: Json, target: Target) -> Service | None:
    """Return the Service in the CRD that `target` must not replace, None without one."""
    service = _client_config(crd).get("service")
    if isinstance(target, Service) or target.replaces_service or not service:
        return None
    return Service(service["namespace"], service["name"])


def patch(crd: Json, target: Target, authorities: bytes) -> Json | None:
    """Return the merge patch that registers the webhook, None if it is registered.

    With its resourceVersion, a concurrent write is a Conflict.
    """
    client_config = {**target.client_config(), "caBundle": base64.b64encode(authorities).decode()}
    conversion = crd["spec"].get("conversion") or {}
    now = _client_config(crd)
    versions = (conversion.get("webhook") or {}).get("conversionReviewVersions") or []
    is_webhook = conversion.get("strategy") == "Webhook" and "v1" in versions
    if is_webhook and all(now.get(key) == value for key, value in client_config.items()):
        return None
    webhook = {"conversionReviewVersions": ["v1"], "clientConfig": client_config}
    return {
        "metadata": {"resourceVersion": crd["metadata"]["resourceVersion"]},
        "spec": {"conversion": {"strategy": "Webhook", "webhook": webhook}},
    }


def is_trusted(crd: Json, authority: bytes) -> bool:
    """Return whether the CRD's bundle contains a CA (PEM)."""
    try:
        bundle = base64.b64decode(_client_config(crd).get("caBundle") or "")
    except binascii.Error:
        return False
    return authority in bundle


def _client_config(crd: Json) -> dict[str, Any]:
    webhook = (crd["spec"].get("conversion") or {}).get("webhook") or {}
    return webhook.get("clientConfig") or {}


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
