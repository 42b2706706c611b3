"""The kubernetes package's loaders of credentials, without the rest of the package.

Its `__init__` imports both of its clients with requests, oauthlib and websocket: a fifth of the
CPU time of the operator's imports. Its class ApiClient imports pydantic, 5 MiB. See
docs/adr/0037-start.md.
"""

from __future__ import annotations

from typing import Any

from operator_runner.core.imports import import_lazily

import_lazily("kubernetes", "kubernetes.aio")

from kubernetes.aio import client  # noqa: E402 (after the package it is in)


def _api_client(*args: Any, **options: Any) -> Any:
    """Return an ApiClient, as functions of `kube_config` do that the operator does not call."""
    return client.ApiClient(*args, **options)


# Before version 37 the class is imported with its package.
_IS_LAZY = "ApiClient" not in vars(client)
if _IS_LAZY:
    vars(client)["ApiClient"] = _api_client

from kubernetes.aio.client import Configuration  # noqa: E402
from kubernetes.aio.config import (  # noqa: E402
    ConfigException,
    incluster_config,
    kube_config,
)

if _IS_LAZY:
    del vars(client)["ApiClient"]  # others get the class

__all__ = ["ConfigException", "Configuration", "incluster_config", "kube_config"]
