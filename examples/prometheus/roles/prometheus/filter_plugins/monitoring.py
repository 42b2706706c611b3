"""Filters over the objects that a Prometheus selects."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Container, Iterable
from typing import Any

Json = dict[str, Any]

_ENDPOINTS = {"PodMonitor": "podMetricsEndpoints", "ServiceMonitor": "endpoints"}
_SECRETS = ("authorization", "basicAuth", "bearerTokenSecret", "oauth2")
_TLS_SECRETS = ("ca", "cert", "keySecret")
_FILES = ("bearerTokenFile",)
_TLS_FILES = ("caFile", "certFile", "keyFile")
_HINT = "the Prometheus allows files with arbitraryFSAccessThroughSMs: {deny: false}"


def object_name(body: Json) -> str:
    """Return kind, namespace and name: `ServiceMonitor shop/web`."""
    metadata = body["metadata"]
    return f"{body['kind']} {metadata['namespace']}/{metadata['name']}"


def in_namespaces(found: Iterable[Json], namespaces: Iterable[Json]) -> list[Json]:
    """Return the objects in selected namespaces, ordered by name.

    `found` are results of reading objects, whose `item.namespaces` is a selector of namespaces, and
    `namespaces` those of reading namespaces, whose `item` is such a selector.
    """
    names = [
        (each["item"], {body["metadata"]["name"] for body in each["resources"]})
        for each in namespaces
    ]
    selected = []
    for each in found:
        requested = each["item"]["namespaces"]
        # Without a selector only the namespace of the Prometheus was read.
        allowed = next((chosen for selector, chosen in names if selector == requested), None)
        selected += [
            body
            for body in each["resources"]
            if requested is None or body["metadata"]["namespace"] in (allowed or ())
        ]
    return sorted(selected, key=object_name)


def _is_set(reference: Any) -> bool:
    """Return whether a reference names something: `{key: ""}` is a default of upstream."""
    return any(reference.values()) if isinstance(reference, dict) else bool(reference)


def refusals(monitors: Iterable[Json], files: bool) -> dict[str, str]:
    """Return why monitors are not used, by their names; `files` is whether they may name files.

    Who writes a monitor could have Prometheus send a Secret or a file, such as its token, anywhere.
    """
    found = {}
    for monitor in monitors:
        spec = monitor.get("spec") or {}
        endpoints = spec.get(_ENDPOINTS.get(monitor["kind"], "")) or [spec]
        for endpoint in endpoints:
            tls = endpoint.get("tlsConfig") or {}
            secrets = [name for name in _SECRETS if _is_set(endpoint.get(name))]
            secrets += [f"tlsConfig.{name}" for name in _TLS_SECRETS if _is_set(tls.get(name))]
            secrets += ["targets.ingress"] * ("ingress" in (endpoint.get("targets") or {}))
            paths = [name for name in _FILES if endpoint.get(name)]
            paths += [f"tlsConfig.{name}" for name in _TLS_FILES if tls.get(name)]
            if secrets:
                found[object_name(monitor)] = f"{secrets[0]} is not supported by this operator"
            elif paths and not files:
                found[object_name(monitor)] = f"{paths[0]} is not allowed; {_HINT}"
    return found


def accepted(objects: Iterable[Json], rejected: Container[str]) -> list[Json]:
    """Return the objects whose names are not rejected."""
    return [body for body in objects if object_name(body) not in rejected]


def rules_file(name: str) -> str:
    """Return the name of the rules file of an object: `shop.web.yaml`."""
    return name.partition(" ")[2].replace("/", ".") + ".yaml"


def gzip_base64(text: str) -> str:
    """Return a text compressed, in base64; the same for the same text."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {
            "accepted": accepted,
            "gzip_base64": gzip_base64,
            "in_namespaces": in_namespaces,
            "object_name": object_name,
            "refusals": refusals,
            "rules_file": rules_file,
        }
