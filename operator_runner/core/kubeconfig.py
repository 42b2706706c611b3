"""The kubeconfig file format."""

from __future__ import annotations

from collections.abc import Mapping

import yaml

_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
"""libyaml if available: ten times as fast."""


def render_kubeconfig(
    name: str, *, cluster: Mapping[str, str], user: Mapping[str, str], namespace: str
) -> str:
    """Return a kubeconfig whose only cluster, user and context are called `name`."""
    context = {"cluster": name, "user": name, "namespace": namespace}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": dict(cluster)}],
        "users": [{"name": name, "user": dict(user)}],
        "contexts": [{"name": name, "context": context}],
    }
    text: str = yaml.dump(content, Dumper=_DUMPER, sort_keys=False)
    return text
