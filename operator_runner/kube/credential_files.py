"""Files with the operator's own credentials, which runs must not be able to read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from yaml import YAMLError

from operator_runner.core.kubeconfig import (
    CREDENTIAL_PATHS,
    kubeconfig_files,
    read_kubeconfigs,
)
from operator_runner.kube.client_config import incluster_config

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
