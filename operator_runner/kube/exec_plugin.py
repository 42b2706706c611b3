"""Credential plugins of kubeconfigs (`exec`): input, start and output.

Source: client-go, plugin/pkg/client/auth/exec; the API client.authentication.k8s.io.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any

import yaml

from operator_runner.core.errors import ConfigError
from operator_runner.core.model import Json
from operator_runner.core.texts import printable

_API_VERSIONS = tuple(f"client.authentication.k8s.io/{version}" for version in ("v1", "v1beta1"))
_INTERACTIVE_MODES = ("IfAvailable", "Never", "Always")
_PASSED = (
    *("server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url"),
    "disable-compression",
)
"""Fields of the cluster that a plugin with provideClusterInfo gets as they are."""
_CONFIG_EXTENSION = "client.authentication.k8s.io/exec"
"""Name of the cluster's extension that is passed to the plugin as `config`."""


async def run_plugin(config: Json, cluster: Json) -> tuple[Json, datetime | None]:
    """Run a plugin; return fields of a kubeconfig's user, and when they expire.

    `config` is the user's `exec`, and `cluster` the cluster, with absolute paths. Raises
    ConfigError.
    """
    command, version = config.get("command"), config.get("apiVersion")
    if not command:
        raise ConfigError("exec of the user has no command")
    if version not in _API_VERSIONS:
        expected = " or ".join(_API_VERSIONS)
        raise ConfigError(f"invalid apiVersion of exec {command}: {version}: expected {expected}")
    is_interactive = _is_interactive(config)
    spec: Json = {"interactive": is_interactive}
    if config.get("provideClusterInfo"):
        spec["cluster"] = _cluster_info(cluster)
    info = {"apiVersion": version, "kind": "ExecCredential", "spec": spec}
    variables = {each["name"]: each.get("value") or "" for each in config.get("env") or ()}
    # As with kubectl, a person reads the plugin's instructions; else they are part of the error.
    is_read = is_interactive or sys.stderr.isatty()
    try:
        process = await asyncio.create_subprocess_exec(
            *(command, *(config.get("args") or ())),
            env={**os.environ, **variables, "KUBERNETES_EXEC_INFO": json.dumps(info)},
            stdin=None if is_interactive else DEVNULL,
            stdout=PIPE,
            stderr=None if is_read else PIPE,
        )
    except OSError as error:
        hint = config.get("installHint") or "install it, or add its directory to PATH"
        raise ConfigError(
            f"cannot start the credential plugin {command} ({error.strerror or error}): "
            f"{printable(str(hint))}"
        ) from error
    output, errors = await process.communicate()
    if process.returncode:
        reason = (errors or b"").decode(errors="replace").strip()
        raise ConfigError(
            f"credential plugin {command} failed with exit status {process.returncode}"
            + (f": {reason}" if reason else "")
        )
    return _credentials(output, command, version)


def _is_interactive(config: Json) -> bool:
    """Return whether the plugin may ask on the terminal. Raises ConfigError."""
    mode, is_terminal = config.get("interactiveMode") or "IfAvailable", _has_terminal()
    if mode not in _INTERACTIVE_MODES:
        expected = ", ".join(_INTERACTIVE_MODES)
        raise ConfigError(f"invalid interactiveMode {mode}: expected one of {expected}")
    if mode == "Always" and not is_terminal:
        raise ConfigError(
            f"the credential plugin {config['command']} asks on a terminal (interactiveMode: "
            "Always), and standard input is not one: log in with kubectl first, or use other "
            "credentials"
        )
    return mode != "Never" and is_terminal


def _has_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def _cluster_info(cluster: Json) -> Json:
    info = {key: cluster[key] for key in _PASSED if cluster.get(key)}
    if data := cluster.get("certificate-authority-data"):
        info["certificate-authority-data"] = data
    elif file := cluster.get("certificate-authority"):
        info["certificate-authority-data"] = base64.b64encode(Path(file).read_bytes()).decode()
    extensions = cluster.get("extensions") or ()
    found = (each["extension"] for each in extensions if each["name"] == _CONFIG_EXTENSION)
    return {**info, "config": next(found, None)}


def _credentials(output: bytes, command: str, version: str) -> tuple[Json, datetime | None]:
    """Return the user's fields and their expiry from the output of a plugin."""
    try:
        answer = _decode(output)
        found, status = answer["apiVersion"], answer["status"] or {}
    except (ValueError, yaml.YAMLError, KeyError, TypeError) as error:
        raise ConfigError(
            f"invalid output of the credential plugin {command}: expected an ExecCredential"
        ) from error
    if found != version:
        raise ConfigError(
            f"credential plugin {command} returned {found}, and the kubeconfig requests {version}: "
            "set the same apiVersion"
        )
    token = status.get("token")
    certificate, key = status.get("clientCertificateData"), status.get("clientKeyData")
    if bool(certificate) != bool(key):
        raise ConfigError(f"{command} returned only one of certificate and key")
    if not token and not certificate:
        raise ConfigError(f"{command} returned neither token nor certificate")
    user: Json = {"token": token} if token else {}
    if certificate and key:
        user["client-certificate-data"] = base64.b64encode(certificate.encode()).decode()
        user["client-key-data"] = base64.b64encode(key.encode()).decode()
    expiry = status.get("expirationTimestamp")
    return user, datetime.fromisoformat(str(expiry)).astimezone(UTC) if expiry else None


def _decode(output: bytes) -> Any:
    with suppress(ValueError):
        return json.loads(output)
    return yaml.load(output, yaml.CSafeLoader)
