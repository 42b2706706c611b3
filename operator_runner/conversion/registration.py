"""How a CRD tells the API server of the webhook: where it is and whom to trust. Pure."""

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
    """A Service that leads to the operator's Pods."""

    namespace: str
    name: str
    port: int = 443

    @property
    def server_name(self) -> str:
        """The name that the API server expects in the certificate."""
        return f"{self.name}.{self.namespace}.svc"

    def client_config(self) -> Json:
        """Return the part of the CRD that names this place."""
        service = {
            "namespace": self.namespace,
            "name": self.name,
            "path": PATH,
            "port": self.port,
        }
        return {"service": service, "url": None}


@dataclass(frozen=True, slots=True)
class Url:
    """An address of this machine; `taken` is whether a Service in the CRD is replaced by it."""

    host: str
    port: int
    taken: bool = False

    @property
    def server_name(self) -> str:
        """The name that the API server expects in the certificate."""
        return self.host

    def client_config(self) -> Json:
        """Return the part of the CRD that names this place."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return {"service": None, "url": f"https://{host}:{self.port}{PATH}"}


Target: TypeAlias = Service | Url


def injector(crd: Json) -> str | None:
    """Return why the CRD's CA is not ours to write, None if it is."""
    name, annotations = crd["metadata"]["name"], crd["metadata"].get("annotations") or {}
    found = next(filter(annotations.get, _INJECTORS), None)
    return found and (
        f"{name} has the annotation {found}, so cert-manager looks after its CA: mount the Secret "
        "of that Certificate in --webhook-cert-dir, or remove the annotation"
    )


def occupant(crd: Json, target: Target) -> Service | None:
    """Return the Service that converts instead and is not to be replaced by this address."""
    service = _client_config(crd).get("service")
    if isinstance(target, Service) or target.taken or not service:
        return None
    return Service(service["namespace"], service["name"])


def patch(crd: Json, target: Target, authorities: bytes) -> Json | None:
    """Return the merge patch that registers the webhook, None if the CRD is as it should be.

    The resourceVersion in it makes somebody else's write in between a Conflict.
    """
    wanted = {
        **target.client_config(),
        "caBundle": base64.b64encode(authorities).decode(),
    }
    conversion = crd["spec"].get("conversion") or {}
    now = _client_config(crd)
    versions = (conversion.get("webhook") or {}).get("conversionReviewVersions") or []
    is_right = conversion.get("strategy") == "Webhook" and "v1" in versions
    if is_right and all(now.get(key) == value for key, value in wanted.items()):
        return None
    webhook = {"conversionReviewVersions": ["v1"], "clientConfig": wanted}
    return {
        "metadata": {"resourceVersion": crd["metadata"]["resourceVersion"]},
        "spec": {"conversion": {"strategy": "Webhook", "webhook": webhook}},
    }


def knows(crd: Json, authority: bytes) -> bool:
    """Tell whether the API server trusts an authority (PEM) by this CRD."""
    try:
        bundle = base64.b64decode(_client_config(crd).get("caBundle") or "")
    except binascii.Error:
        return False
    return authority in bundle


def _client_config(crd: Json) -> dict[str, Any]:
    webhook = (crd["spec"].get("conversion") or {}).get("webhook") or {}
    return webhook.get("clientConfig") or {}
