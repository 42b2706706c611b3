"""Address of the API server and credentials, from kubeconfig files or the service account.

The kubernetes package loads them. This module adds kubectl's search order, its rule that the
first of several files sets the current context, renewal while the operator runs, and errors
that name the file and a hint.
"""

from __future__ import annotations

import asyncio
import binascii
import logging
import os
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any
from urllib.request import getproxies_environment

import structlog
from aiohttp.helpers import get_env_proxy_for_url
from yaml import MarkedYAMLError, YAMLError
from yarl import URL

from operator_runner.core.errors import ConfigError
from operator_runner.kube.client_config import (
    ConfigException,
    Configuration,
    exec_provider,
    incluster_config,
    kube_config,
)

_RENEW_PERIOD_SECONDS = 60.0
"""Between two checks of a token file or a plugin's expiry, as in client-go."""

_in_cluster: Any = incluster_config
_kube_config: Any = kube_config
_exec_provider: Any = exec_provider
"""The package is only partly typed; these modules are not."""

_LOAD_ERRORS = (
    ConfigException,
    YAMLError,
    OSError,
    AttributeError,
    KeyError,
    TypeError,
    ValueError,
    binascii.Error,
)
"""The loader does not validate: an invalid file raises any of these."""

_log = structlog.get_logger(__name__)


class Credentials:
    """Server, namespace and TLS context; `header()` is the current Authorization header."""

    def __init__(self, configuration: Any, namespace: str, loader: Any = None) -> None:
        """Take a loaded kubernetes Configuration; `loader` can load it again."""
        self.server: str = configuration.host.rstrip("/")
        self.namespace = namespace
        self.proxy = _proxy(configuration)
        self.tls_name: str | None = configuration.tls_server_name
        self.ssl_context = _ssl_context(configuration)
        self._configuration = configuration
        self._loader = loader
        self._lock = asyncio.Lock()
        self._renew_at = time.monotonic() + _RENEW_PERIOD_SECONDS
        if loader is not None:
            configuration.refresh_api_key_hook = self._renew_when_due

    async def header(self) -> str | None:
        """Return the Authorization header, renewed if necessary; None with a client certificate.

        A failed renewal is logged, and the old header is returned: it may still be valid.
        """
        try:
            settings = await self._configuration.auth_settings()
        except (ConfigException, OSError) as error:
            # The service account's token file could not be read.
            _log.warning("Cannot renew credentials", error=str(error))
            return _header(self._configuration)
        value: str | None = settings.get("BearerToken", {}).get("value")
        return value.strip() if value else None

    async def renew(self) -> bool:
        """Load the credentials again after a 401; return whether the header has changed."""
        if self._loader is None:
            return False
        before = _header(self._configuration)
        async with self._lock:
            if before == _header(self._configuration):
                # Without its expiry, the loader runs the exec plugin again.
                self._loader.__dict__.pop("exec_plugin_expiry", None)
                await self._reload()
        return before != _header(self._configuration)

    async def _renew_when_due(self, _: Any) -> None:
        if time.monotonic() < self._renew_at or not self._can_expire():
            return
        async with self._lock:
            if time.monotonic() >= self._renew_at:
                await self._reload()

    def _can_expire(self) -> bool:
        user = self._loader._user or {}  # noqa: SLF001 the loader shows it nowhere else
        if "exec" in user:
            # A plugin without an expiry runs again only after a 401, as in kubectl.
            return hasattr(self._loader, "exec_plugin_expiry")
        return any(key in user for key in ("tokenFile", "auth-provider", "client-certificate"))

    async def _reload(self) -> None:
        self._renew_at = time.monotonic() + _RENEW_PERIOD_SECONDS
        try:
            await self._loader.load_and_set(self._configuration)
            _load_client_certificate(self.ssl_context, self._configuration)
        except _LOAD_ERRORS as error:
            _log.warning("Cannot renew credentials", error=str(error))


def _proxy(configuration: Any) -> URL | None:
    """Return the proxy to the API server: `proxy-url` ("" disables it), else HTTPS_PROXY.

    Looked up once: with trust_env, aiohttp does so for each request, in a thread.
    """
    if configuration.proxy is not None:
        return URL(configuration.proxy) if configuration.proxy else None
    server = URL(configuration.host)
    if _is_without_proxy(server):
        return None
    try:
        proxy, user = get_env_proxy_for_url(server)
    except LookupError:  # unset, or NO_PROXY contains the server
        return None
    return proxy if user is None else proxy.with_user(user.login).with_password(user.password)


def _is_without_proxy(server: URL) -> bool:
    """Return whether kubectl uses no proxy: for loopback; for networks and ports in NO_PROXY.

    Source: golang.org/x/net/http/httpproxy. aiohttp compares the names in NO_PROXY.
    """
    host, entries = server.host or "", getproxies_environment().get("no", "").split(",")
    if host == "localhost" or f"{host}:{server.port}" in map(str.strip, entries):
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    for entry in entries:
        with suppress(ValueError):
            if address in ip_network(entry.strip(), strict=False):
                return True
    return address.is_loopback


async def load(kubeconfig: Path | None, context: str = "") -> Credentials:
    """Find credentials: `kubeconfig`, KUBECONFIG, the service account, ~/.kube/config.

    `context` is one of these files, so with it the service account is not used; empty is the
    current one. Raises ConfigError with the file, the problem and a hint.
    """
    if (files := _files(kubeconfig, only_files=bool(context))) is not None:
        return await _from_files(*files, context)
    if not context and is_in_pod():
        return _from_service_account()
    home = _home()
    raise ConfigError(
        "no Kubernetes cluster configured: KUBECONFIG is unset, and neither a service account nor "
        f"{home} exists; set --kubeconfig FILE or KUBECONFIG"
    )


def contexts(kubeconfig: Path | None) -> list[str]:
    """Return the names of the contexts that a user can select; none on errors."""
    if (files := _files(kubeconfig, only_files=True)) is None:
        return []
    try:
        merged = _kube_config.KubeConfigMerger(files[0]).config
        return [str(each["name"]) for each in merged["contexts"]]
    except _LOAD_ERRORS:
        return []


def _files(kubeconfig: Path | None, *, only_files: bool) -> tuple[str, str] | None:
    """Return the list of files to read and its source, None if there are none.

    Unless `only_files`, the service account of a Pod precedes ~/.kube/config.
    """
    if kubeconfig is not None:
        return str(kubeconfig), "--kubeconfig"
    if files := os.environ.get("KUBECONFIG"):
        return files, "KUBECONFIG"
    if _home().exists() and (only_files or not is_in_pod()):
        return str(_home()), "kubeconfig"
    return None


def is_in_pod() -> bool:
    """Return whether this process runs in a Pod, which has the address of the API server."""
    return bool(os.environ.get(incluster_config.SERVICE_HOST_ENV_NAME))


def _home() -> Path:
    return Path.home() / ".kube" / "config"


def _from_service_account() -> Credentials:
    mounted = Path(_in_cluster.SERVICE_TOKEN_FILENAME).parent
    configuration = Configuration(host="")
    try:
        _in_cluster.load_incluster_config(configuration)
        namespace = (mounted / "namespace").read_text().strip()
        return Credentials(configuration, namespace)
    except (ConfigException, OSError) as error:
        raise ConfigError(
            f"service account {mounted}: {error}; set "
            "automountServiceAccountToken: true for the Pod, or set KUBECONFIG"
        ) from error


async def _from_files(files: str, source: str, selected: str) -> Credentials:
    """Merge the files of a colon-separated list as kubectl does: the first value wins.

    `selected` is a context; empty is the current one.
    """
    if not any(os.path.isfile(os.path.expanduser(file)) for file in files.split(os.pathsep)):  # noqa: ASYNC240, PTH111, PTH113
        raise ConfigError(f"{source}={files}: no such file; set it to an existing kubeconfig")
    configuration = Configuration(host="")
    try:
        merged = _kube_config.KubeConfigMerger(files)
        _check_context(merged.config, selected)
        current = (file.get("current-context") for file in merged.config_files.values())
        context = next(filter(None, [selected, *current]), None)
        loader = _kube_config.KubeConfigLoader(merged.config, context)
        with _without_log():
            await loader.load_and_set(configuration)
        await _check(configuration, loader)
        namespace = loader.current_context["context"].get("namespace") or "default"
        return Credentials(configuration, namespace, loader)
    except _LOAD_ERRORS as error:
        raise ConfigError(
            f"{source}={files}: {_problem(error)}; "
            f"compare with `KUBECONFIG={files} kubectl config view`"
        ) from error


def _check_context(config: Any, selected: str) -> None:
    names = [str(each["name"]) for each in config["contexts"]]
    if selected and selected not in names:
        raise ConfigException(
            f"unknown context {selected}; its contexts are {', '.join(names) or 'none'}"
        )


def _problem(error: Exception) -> str:
    """Describe an error of the loader, which trips over content that is not a kubeconfig."""
    match error:
        case KeyError():
            return f"missing key {error}"
        case TypeError() | AttributeError():
            return (
                "invalid kubeconfig: expected a map with the lists clusters, contexts and users, "
                "each of maps"
            )
        case MarkedYAMLError(problem_mark=mark) if mark is not None:
            return f"invalid YAML: line {mark.line + 1}: {error.problem}"
        case ConfigException() | YAMLError():
            return str(error)
    return f"{type(error).__name__}: {error}"


async def _check(configuration: Any, loader: Any) -> None:
    if not configuration.host:
        raise ConfigException("the cluster of the current context has no server")
    if not _is_url(configuration.host):
        raise ConfigException(
            f"invalid server {configuration.host}: write a URL such as https://127.0.0.1:6443"
        )
    user = loader._user or {}  # noqa: SLF001 the loader shows it nowhere else
    if "exec" in user and not _header(configuration) and not configuration.cert_file:
        # The loader only logs why the plugin failed; running it again raises the reason.
        command = user["exec"]["command"]
        try:
            await _exec_provider.ExecProvider(user["exec"]).run()
        except OSError as error:
            raise ConfigException(
                f"cannot start the credential plugin {command} ({error.strerror or error}): "
                "install it, or add its directory to PATH"
            ) from error
        raise ConfigException(f"{command} returned neither token nor certificate")


def _is_url(server: str) -> bool:
    try:
        url = URL(server)
    except ValueError:
        return False
    return url.scheme in {"https", "http"} and bool(url.host)


@contextmanager
def _without_log() -> Iterator[None]:
    """Drop the lines of the loader: `_check` raises what it would only log."""
    log = logging.getLogger(kube_config.__name__)
    log.disabled = True
    try:
        yield
    finally:
        log.disabled = False


def _header(configuration: Any) -> str | None:
    key: str | None = configuration.api_key.get("BearerToken")
    return key.strip() if key else None


def _ssl_context(configuration: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    # Go, and so kubectl, accepts cluster CAs that fail X509_STRICT.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    _load_client_certificate(context, configuration)
    return context


def _load_client_certificate(context: ssl.SSLContext, configuration: Any) -> None:
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    # The package writes inline keys to temporary files; remove them at once.
    _kube_config._cleanup_temp_files()  # noqa: SLF001
