"""The webhook's parts in the test's own event loop, against a real API server."""

from __future__ import annotations

import asyncio
import datetime as dt
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from operator_runner.config.watches.expressions import evaluate
from operator_runner.conversion.certificates import ServingCertificate
from operator_runner.conversion.converter import Converter, Storage
from operator_runner.conversion.registrar import Registrar, Url
from operator_runner.conversion.server import serve_conversions
from operator_runner.core.errors import Unavailable
from operator_runner.core.model import GVK, Conversion, Json
from operator_runner.kube.api import Api
from operator_runner.kube.certificate_sources import CertificateSource, InMemoryCertificates
from operator_runner.kube.session import connect
from operator_runner.net.certificates import CertificateLifetimes

SHORT = CertificateLifetimes(
    dt.timedelta(seconds=18), dt.timedelta(seconds=15), dt.timedelta(seconds=3)
)
"""An authority is renewed after 12 s, a certificate after 10 s, and 3 s after an authority.

Each renewal has 3 s before the old one expires: a busy machine needs some of them.
"""
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture
async def api(control_plane: Path) -> AsyncIterator[Api]:
    """Connect to the control plane as its administrator."""
    connection = await connect(control_plane, user_agent="tests")
    yield Api(connection)
    await connection.close()


async def until(check: Callable[[], Awaitable[bool]], seconds: float = 180) -> None:
    """Wait until `check` returns True."""
    async with asyncio.timeout(seconds):
        while not await check():  # noqa: ASYNC110 there is no event for it
            await asyncio.sleep(0.05)


@dataclass(frozen=True)
class Kind:
    """A kind of two versions, made for one test: `size` of v1 is `replicas` of v2."""

    api: Api
    group: str

    @property
    def hub(self) -> GVK:
        return GVK(self.group, "v2", "Web")

    @property
    def crd(self) -> str:
        return f"{CRDS}/webs.{self.group}"

    def path(self, version: str, name: str = "") -> str:
        return f"/apis/{self.group}/{version}/namespaces/default/webs/{name}".rstrip("/")

    async def create(self, version: str, name: str, **spec: object) -> Json:
        body = {
            "apiVersion": f"{self.group}/{version}",
            "kind": "Web",
            "metadata": {"name": name},
            "spec": spec,
        }
        return await self.request("POST", self.path(version), body)

    async def get(self, version: str, name: str = "") -> Json:
        """Return an object in this version, or the list of all."""
        return await self.request("GET", self.path(version, name))

    async def request(self, method: str, path: str, body: Json | None = None) -> Json:
        """Send a request, again while the API server replaces the handlers of a changed CRD."""
        while True:
            try:
                return await self.api.request(method, path, body=body)
            except Unavailable as error:
                if "apiserver is shutting down" not in str(error):
                    raise
                await asyncio.sleep(0.05)

    async def text(self, method: str, path: str, body: str | None = None) -> str:
        """Send a request and return the JSON of the response: objects may be nested very deep."""
        connection = self.api.connection
        headers = {"Content-Type": "application/json"}
        url = connection.url(path)
        async with asyncio.timeout(60):
            while True:
                async with connection.http.request(
                    method, url, data=body, headers=headers
                ) as response:
                    answer = await response.text()
                    if response.status != 429:  # while the storage of a version is initialized
                        assert response.status < 400, answer[:1000]
                        return answer
                await asyncio.sleep(0.1)

    async def name(self, _: GVK) -> str:
        return f"webs.{self.group}"


@pytest.fixture
async def kind(api: Api) -> AsyncIterator[Kind]:
    """Install a CRD without a running conversion webhook, and remove it after the test."""
    group = f"t{secrets.token_hex(4)}.example.com"
    made = Kind(api, group)
    await api.request("POST", CRDS, body=_definition(group))
    await until(lambda: _is_served(made))
    yield made
    await api.request("DELETE", made.crd)


async def _is_served(kind: Kind) -> bool:
    with suppress(Exception):
        await kind.api.request("GET", kind.path("v2"))
        return True
    return False


def _definition(group: str) -> Json:
    def version(name: str, field: str) -> Json:
        fields = {field: {"type": "integer"}, "note": _TEXT, "extra": _ANYTHING}
        spec = {"type": "object", "properties": fields}
        schema = {"type": "object", "properties": {"spec": spec}}
        return {
            "name": name,
            "served": True,
            "storage": name == "v2",
            "schema": {"openAPIV3Schema": schema},
        }

    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"webs.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": "Web", "plural": "webs", "singular": "web"},
            "versions": [version("v1", "size"), version("v2", "replicas")],
            "conversion": {
                "strategy": "Webhook",
                "webhook": {
                    "conversionReviewVersions": ["v1"],
                    "clientConfig": {"url": "https://127.0.0.1:9/convert"},
                },
            },
        },
    }


_TEXT: Json = {"type": "string"}
_ANYTHING: Json = {"x-kubernetes-preserve-unknown-fields": True}


class Served:
    """A webhook that serves a kind."""

    def __init__(self, kind: Kind, serving: ServingCertificate, registrar: Registrar) -> None:
        self.kind, self.serving, self.registrar = kind, serving, registrar


Serve = Callable[..., Awaitable[Served]]


@asynccontextmanager
async def served(
    kind: Kind,
    lifetimes: CertificateLifetimes,
    *,
    size: str = "spec.replicas",
    source: CertificateSource | None = None,
) -> AsyncIterator[Served]:
    """Serve conversions of a kind, which are registered when the block begins; see `serving`."""
    async with serving(kind, lifetimes, size=size, source=source) as webhook:

        async def is_registered() -> bool:
            return webhook.registrar.missing() is None

        await until(is_registered)
        yield webhook


@asynccontextmanager
async def serving(
    kind: Kind,
    lifetimes: CertificateLifetimes,
    *,
    size: str = "spec.replicas",
    source: CertificateSource | None = None,
) -> AsyncIterator[Served]:
    """Serve conversions of a kind with certificates of these lives; `size` is an expression."""
    conversion = Conversion("v1", {("spec", "replicas"): "spec.size"}, {("spec", "size"): size})
    converter = Converter(kind.hub, [conversion], evaluate)
    converters = {(kind.group, "Web"): converter}
    certificate = ServingCertificate()
    server = await serve_conversions(converters, 0, certificate.context, lambda *_: None)
    registrar = Registrar(
        kind.api,
        source or InMemoryCertificates(lifetimes),
        certificate,
        {kind.hub: [conversion]},
        check_interval=lifetimes.check_interval,
        crd_name=kind.name,
        on_crd=lambda _, crd: setattr(converter, "storage", Storage.of(crd)),
    )
    task = asyncio.create_task(registrar.run(Url("127.0.0.1", server.port)))
    try:
        yield Served(kind, certificate, registrar)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await server.stop()
