"""Resources of the example Prometheus operator, and what its objects have."""

from __future__ import annotations

import base64
import gzip
from typing import Any

from tests.support.kubectl import Json, Kubectl

GROUP = "monitoring.coreos.com"
KIND = f"prometheuses.{GROUP}"


def monitoring(kind: str, name: str, /, team: str = "a", **spec: Any) -> Json:
    """Return an object with the label of a team."""
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": kind,
        "metadata": {"name": name, "labels": {"team": team}},
        "spec": spec,
    }


def service_monitor(name: str = "web", team: str = "a", **spec: Any) -> Json:
    """Return a ServiceMonitor of the samples' application."""
    body = monitoring("ServiceMonitor", name, team, endpoints=[{"port": "web"}])
    body["spec"] |= {"selector": {"matchLabels": {"app": "example-app"}}} | spec
    return body


def rules(name: str, expression: str, team: str = "a") -> Json:
    """Return a PrometheusRule with one alert, which has its name."""
    group = {"name": f"{name}.rules", "rules": [{"alert": name, "expr": expression}]}
    return monitoring("PrometheusRule", name, team, groups=[group])


def condition(kubectl: Kubectl, type_: str, name: str = "main", kind: str = KIND) -> Json:
    """Return a condition of a resource, with an empty status if it does not exist."""
    status = (kubectl.get(kind, name) or {}).get("status", {})
    found = (each for each in status.get("conditions", []) if each["type"] == type_)
    return next(found, {"status": ""})


def configuration(kubectl: Kubectl, name: str = "main") -> str:
    """Return the configuration in the Secret of a Prometheus; empty without it."""
    found = kubectl.get("secret", f"prometheus-{name}") or {"data": {}}
    packed = found["data"].get("prometheus.yaml.gz", "")
    try:
        return gzip.decompress(base64.b64decode(packed)).decode()
    except (EOFError, OSError):
        return "damaged"
