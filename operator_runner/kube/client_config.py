"""The kubernetes package's loaders of credentials, without the rest of the package.

Its `__init__` imports both of its clients with requests, oauthlib and websocket: a fifth of the
CPU time of the operator's imports. See docs/adr/0037-start.md.
"""

from __future__ import annotations

from operator_runner.core.imports import import_lazily

import_lazily("kubernetes", "kubernetes.aio")

from kubernetes.aio.client import Configuration  # noqa: E402 (after the packages it is in)
from kubernetes.aio.config import (  # noqa: E402
    ConfigException,
    exec_provider,
    incluster_config,
    kube_config,
)

__all__ = ["ConfigException", "Configuration", "exec_provider", "incluster_config", "kube_config"]
