"""The kubeconfig file format, as clients and the parts of the cluster read it."""

from __future__ import annotations

import base64
from pathlib import Path

from operator_runner.core.kubeconfig import render_kubeconfig
from operator_runner.devcluster.certificates import KeyPair


def kubeconfig(*, server: str, authority: Path, user: KeyPair, name: str) -> str:
    """Return a kubeconfig whose one context `name` carries its certificates within itself.

    `server` is the API server's URL, `authority` the PEM file of the authority that signed it.
    """
    return render_kubeconfig(
        name,
        cluster={"server": server, "certificate-authority-data": _encoded(authority)},
        user={
            "client-certificate-data": _encoded(user.certificate),
            "client-key-data": _encoded(user.key),
        },
        namespace="default",
    )


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
