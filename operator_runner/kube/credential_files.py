"""Files with the operator's own credentials, which runs must not be able to read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from operator_runner.kube.client_config import incluster_config

_in_cluster: Any = incluster_config
_USER_FILES = ("client-certificate", "client-key", "tokenFile")
"""Fields of a kubeconfig's user that name a file, relative to the kubeconfig as in client-go."""
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
        return  # reported where it is loaded
    for user in _users(content):
        for field in _USER_FILES:
            if isinstance(user.get(field), str) and user[field]:
                yield kubeconfig.parent / user[field]


def _users(content: Any) -> Iterable[dict[str, Any]]:
    users = content.get("users") if isinstance(content, dict) else None
    entries = users if isinstance(users, list) else ()
    named = (entry.get("user") for entry in entries if isinstance(entry, dict))
    return [user for user in named if isinstance(user, dict)]
