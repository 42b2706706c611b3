"""Access the API server; the only module of the bench that imports the Kubernetes client."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubernetes import config
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import (
    BadRequestError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    ResourceNotFoundError,
    UnprocessibleEntityError,
)
from prometheus_client.parser import text_string_to_metric_families

from bench.errors import BenchError, TimedOut

Json = dict[str, Any]

GROUP = "bench.example.com"
_REQUESTS = "apiserver_request_total"
_CHECK_SECONDS = 30.0
_TIMEOUT = 30.0
"""Timeout of one request, in seconds."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of object."""

    api_version: str
    name: str


@dataclass(frozen=True, slots=True)
class Tls:
    """Files of a client's certificates."""

    authority: str
    certificate: str
    key: str


THREE, WEB, PAUSE, LONG, FILES, APP = (
    Kind(f"{GROUP}/v1", name) for name in ("Three", "Web", "Pause", "Long", "Files", "App")
)
NGINX = Kind("operator.example.com/v1alpha2", "NginxOperator")
"""The project's own."""
CONFIG_MAP = Kind("v1", "ConfigMap")
SERVICE = Kind("v1", "Service")
DEPLOYMENT = Kind("apps/v1", "Deployment")
POD = Kind("v1", "Pod")
SERVICE_ACCOUNT = Kind("v1", "ServiceAccount")
INGRESS = Kind("networking.k8s.io/v1", "Ingress")
_NAMESPACE = Kind("v1", "Namespace")
_CRD = Kind("apiextensions.k8s.io/v1", "CustomResourceDefinition")


class Api:
    """Reads and writes objects."""

    def __init__(self, kubeconfig: Path, cache: Path) -> None:
        """Connect with the kubeconfig; `cache` is a file for the discovery of the API."""
        client = config.new_client_from_config(str(kubeconfig))  # type: ignore[no-untyped-call]
        self._client = DynamicClient(client, cache_file=str(cache))  # type: ignore[no-untyped-call]

    @property
    def url(self) -> str:
        """The API server's URL."""
        return str(self._client.configuration.host)

    @property
    def tls(self) -> Tls:
        """Certificate files for other connections; they are deleted when this process exits."""
        known = self._client.configuration
        return Tls(known.ssl_ca_cert, known.cert_file, known.key_file)

    def install(self, definitions: Sequence[Json]) -> None:
        """Apply CRDs and wait until their kinds are served. Raises BenchError."""
        for body in definitions:
            self._put(_CRD, body)
        deadline = time.monotonic() + _TIMEOUT
        for body in definitions:
            kind = _kind_of(body)
            while not self._is_served(kind):
                if time.monotonic() > deadline:
                    raise BenchError(f"the API server does not serve {kind.name}")
                time.sleep(0.1)

    def _put(self, kind: Kind, body: Json) -> None:
        """Create an object, or replace the existing one."""
        try:
            self._of(kind).create(body=body, _request_timeout=_TIMEOUT)
        except ConflictError:
            there = self._of(kind).get(name=body["metadata"]["name"], _request_timeout=_TIMEOUT)
            metadata = body["metadata"] | {"resourceVersion": there.metadata.resourceVersion}
            self._of(kind).replace(body=body | {"metadata": metadata}, _request_timeout=_TIMEOUT)

    def make_namespace(self, name: str) -> None:
        """Create a namespace."""
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        self._of(_NAMESPACE).create(body=body, _request_timeout=_TIMEOUT)

    def create(self, kind: Kind, namespace: str, name: str, spec: Json) -> None:
        """Create a resource of the bench."""
        metadata = {"name": name}
        body = {
            "apiVersion": kind.api_version,
            "kind": kind.name,
            "metadata": metadata,
            "spec": spec,
        }
        self.create_object(namespace, body)

    def create_object(self, namespace: str, body: Json) -> None:
        """Create an object in a namespace. Raises BenchError if the API server refuses it."""
        kind = Kind(body["apiVersion"], body["kind"])
        body = {**body, "metadata": {**body["metadata"], "namespace": namespace}}
        try:
            self._of(kind).create(body=body, namespace=namespace, _request_timeout=_TIMEOUT)
        except (BadRequestError, ForbiddenError, UnprocessibleEntityError) as error:
            refusal = f"{kind.name} {body['metadata']['name']}: {error.body}"
            raise BenchError(refusal) from None

    def get(self, kind: Kind, namespace: str, name: str) -> Json:
        """Return an object."""
        found = self._of(kind).get(name=name, namespace=namespace, _request_timeout=_TIMEOUT)
        return dict(found.to_dict())

    def all_objects(self, namespace: str, without: Collection[str]) -> list[Json]:
        """Return all objects of a namespace, apart from some kinds."""
        self._client.resources.invalidate_cache()
        kinds = {
            Kind(each.group_version, each.kind)
            for each in self._client.resources.search(preferred=True)
            if each.namespaced and "list" in each.verbs and not each.kind.endswith("List")
        }
        return [
            {**body, "apiVersion": kind.api_version, "kind": kind.name}
            for kind in kinds
            if kind.name not in without
            for body in self.list(kind, namespace)
        ]

    def merge(self, kind: Kind, namespace: str, name: str, patch: Json) -> None:
        """Merge a patch into an object."""
        self._of(kind).patch(
            body=patch,
            name=name,
            namespace=namespace,
            content_type="application/merge-patch+json",
            _request_timeout=_TIMEOUT,
        )

    def merge_status(
        self, kind: Kind, namespace: str, name: str, status: Json, *, missing_ok: bool = False
    ) -> None:
        """Merge a patch into the status of an object, as its controller does.

        With `missing_ok`, nothing is done if the object has been deleted.
        """
        with contextlib.suppress(NotFoundError) if missing_ok else contextlib.nullcontext():
            self._of(kind).status.patch(
                body={"status": status},
                name=name,
                namespace=namespace,
                content_type="application/merge-patch+json",
                _request_timeout=_TIMEOUT,
            )

    def delete(self, kind: Kind, namespace: str, name: str) -> None:
        """Delete an object if it exists."""
        with contextlib.suppress(NotFoundError):
            self._of(kind).delete(name=name, namespace=namespace, _request_timeout=_TIMEOUT)

    def list(self, kind: Kind, namespace: str) -> list[Json]:
        """Return the objects of a kind."""
        found = self._of(kind).get(namespace=namespace, _request_timeout=_TIMEOUT)
        return [item.to_dict() for item in found.items]

    def watch(self, kind: Kind, namespace: str, seconds: float) -> Iterator[Json]:
        """Yield the existing objects, then each changed one, for some seconds."""
        stream = self._of(kind).watch(namespace=namespace, timeout=max(1, round(seconds)))
        for event in stream:
            if event["type"] != "DELETED":
                yield event["raw_object"]

    def until(
        self,
        kind: Kind,
        namespace: str,
        names: set[str],
        done: Callable[[Json], bool],
        seconds: float,
        *,
        check: Callable[[], object] = lambda: None,
    ) -> None:
        """Wait until `done` was true of each object. Raises TimedOut after `seconds`.

        `check` is called every half minute, and raises an error if it cannot happen any more.
        """
        left, deadline = set(names), time.monotonic() + seconds
        while left and (rest := deadline - time.monotonic()) > 0:
            check()
            for body in self.watch(kind, namespace, min(rest, _CHECK_SECONDS)):
                if done(body):
                    left.discard(body["metadata"]["name"])
                if not left:
                    break
        if left:
            raise TimedOut(
                f"{len(left)} of {len(names)} {kind.name} not converged within {seconds:g} s: "
                + ", ".join(sorted(left)[:5])
            )

    def requests(self) -> Counter[str]:
        """Return the number of requests by verb and resource, watches excluded."""
        text = self._client.request("get", "/metrics", serialize=False).data.decode()
        # All the metrics of an API server are megabytes.
        lines = [line for line in text.splitlines() if line.startswith(_REQUESTS)]
        counts: Counter[str] = Counter()
        for family in text_string_to_metric_families("\n".join(lines) + "\n"):
            for sample in family.samples:
                if sample.labels["verb"] != "WATCH":
                    words = [sample.labels[key] for key in ("verb", "group", "resource")]
                    counts[" ".join(filter(None, words))] += int(sample.value)
        return counts

    def _of(self, kind: Kind) -> Any:
        return self._client.resources.get(api_version=kind.api_version, kind=kind.name)

    def _is_served(self, kind: Kind) -> bool:
        try:
            self._client.resources.invalidate_cache()
            self._of(kind).get(namespace="default")
        except (ResourceNotFoundError, NotFoundError):
            return False
        return True


def is_successful(body: Json) -> bool:
    """Return whether the condition Successful of a resource is True."""
    conditions = body.get("status", {}).get("conditions", ())
    return any(c["type"] == "Successful" and c["status"] == "True" for c in conditions)


def _kind_of(definition: Json) -> Kind:
    spec = definition["spec"]
    return Kind(f"{spec['group']}/{spec['versions'][0]['name']}", spec["names"]["kind"])


def definition(kind: Kind) -> Json:
    """Return the CRD of a kind of the bench, which preserves unknown fields."""
    plural = f"{kind.name.lower()}s"
    names = {
        "kind": kind.name,
        "plural": plural,
        "singular": kind.name.lower(),
        "listKind": f"{kind.name}List",
    }
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": _CRD.api_version,
        "kind": _CRD.name,
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }
