"""The kubeconfig file format, as clients and the parts of the cluster read it."""

from __future__ import annotations

import base64
from pathlib import Path

import yaml

from operator_runner.devcluster.certificates import KeyPair


def kubeconfig(*, server: str, authority: Path, user: KeyPair, name: str) -> str:
    """Return a kubeconfig whose one context `name` carries its certificates within itself.

    `server` is the API server's URL, `authority` the PEM file of the authority that signed it.
    """
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "clusters": [
                {
                    "name": name,
                    "cluster": {
                        "server": server,
                        "certificate-authority-data": _encoded(authority),
                    },
                }
            ],
            "users": [
                {
                    "name": name,
                    "user": {
                        "client-certificate-data": _encoded(user.certificate),
                        "client-key-data": _encoded(user.key),
                    },
                }
            ],
            "contexts": [
                {"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}}
            ],
        },
        sort_keys=False,
    )


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
