"""Files with the operator's own credentials, which runs must not be able to read.

The loaders of credentials of the kubernetes package are imported without the rest of the package.
Its `__init__` imports both of its clients with requests, oauthlib and websocket: a fifth of the CPU
time of the operator's imports. Its class ApiClient imports pydantic, 5 MiB. See
docs/adr/0037-start.md.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from yaml import YAMLError

from operator_runner.core.imports import import_lazily
from operator_runner.core.kubeconfig import CREDENTIAL_PATHS, kubeconfig_files, read_kubeconfigs

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
from kubernetes.aio.config import ConfigException, incluster_config, kube_config  # noqa: E402

if _IS_LAZY:
    del vars(client)["ApiClient"]  # others get the class

__all__ = ["ConfigException", "Configuration", "incluster_config", "kube_config"]


_in_cluster: Any = incluster_config
_CACHES = (
    ".kube/cache",
    ".kube/gke_gcloud_auth_plugin_cache",
    ".aws/cli/cache",
    ".aws/sso/cache",
    ".azure/msal_token_cache.json",
    ".config/gcloud/access_tokens.db",
    ".config/gcloud/credentials.db",
)
"""Token caches of common exec plugins, below the home directory."""


def credential_files(kubeconfig: Path | None, webhook_certificates: Path) -> tuple[Path, ...]:
    """Return files and directories with credentials of the operator, existing or not.

    These are all candidate kubeconfigs (`kubeconfig`, each of KUBECONFIG, ~/.kube/config), the
    files that their users refer to, caches of exec plugins, the service account's token, and
    the key of the conversion webhook. CA certificates are public.
    """
    home = Path.home()
    lists = (str(kubeconfig or ""), os.environ.get("KUBECONFIG", ""), str(home / ".kube/config"))
    files = [file for names in lists for file in kubeconfig_files(names)]
    found = [
        *files,
        *(path for file in files for path in _referred_to(file)),
        *(home / name for name in _CACHES),
        Path(_in_cluster.SERVICE_TOKEN_FILENAME),
        webhook_certificates.absolute() / "tls.key",
    ]
    return tuple(dict.fromkeys(found))


def _referred_to(kubeconfig: Path) -> Iterator[Path]:
    try:
        users = read_kubeconfigs([kubeconfig]).users.values()
    except (OSError, ValueError, YAMLError):
        return  # reported where it is loaded
    for user in users:
        yield from (Path(user[each]) for each in CREDENTIAL_PATHS if each in user)
