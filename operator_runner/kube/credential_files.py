"""Where the operator's own credentials are stored, so that runs can be kept from reading them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml
from kubernetes.aio.config import incluster_config

_in_cluster: Any = incluster_config
_USER_FILES = ("client-certificate", "client-key", "tokenFile")
"""Fields of a kubeconfig's user that name a file; client-go takes it relative to the kubeconfig."""
_CACHES = (
    ".kube/cache",
    ".kube/gke_gcloud_auth_plugin_cache",
    ".aws/cli/cache",
    ".aws/sso/cache",
    ".azure/msal_token_cache.json",
    ".config/gcloud/access_tokens.db",
    ".config/gcloud/credentials.db",
)
"""Where the usual exec plugins keep tokens, below the home directory."""


def credential_files(kubeconfig: Path | None, webhook_certificates: Path) -> tuple[Path, ...]:
    """Return files and directories with credentials of the operator, existing or not.

    They are all kubeconfigs that could have been taken (`kubeconfig`, each of KUBECONFIG,
    ~/.kube/config), what their users refer to, caches of exec plugins, the service account's
    token, and the key of the conversion webhook. Certificates of authorities are public.
    """
    home = Path.home()
    lists = (str(kubeconfig or ""), os.environ.get("KUBECONFIG", ""), str(home / ".kube/config"))
    files = [
        Path(name).expanduser().absolute()
        for names in lists
        for name in names.split(os.pathsep)
        if name
    ]
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
        with kubeconfig.open(encoding="utf-8") as file:
            content = yaml.load(file, yaml.CSafeLoader)
    except (OSError, ValueError, yaml.YAMLError):
        return  # whoever loads it for use reports that
    for user in _users(content):
        for field in _USER_FILES:
            if isinstance(user.get(field), str) and user[field]:
                yield kubeconfig.parent / user[field]


def _users(content: Any) -> Iterable[dict[str, Any]]:
    users = content.get("users") if isinstance(content, dict) else None
    entries = users if isinstance(users, list) else ()
    named = (entry.get("user") for entry in entries if isinstance(entry, dict))
    return [user for user in named if isinstance(user, dict)]
