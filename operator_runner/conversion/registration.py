"""Registration of the webhook in a CRD: its address and the CA bundle. Pure."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Any, TypeAlias

from operator_runner.conversion.server import PATH
from operator_runner.core.model import Json

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
        service = {
            "namespace": self.namespace,
            "name": self.name,
            "path": PATH,
            "port": self.port,
        }
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
    client_config = {
        **target.client_config(),
        "caBundle": base64.b64encode(authorities).decode(),
    }
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
