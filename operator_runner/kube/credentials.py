"""Address of the API server and credentials, from kubeconfig files or the service account.

`core.kubeconfig` merges the files and `exec_plugin` runs plugins, as client-go does; the kubernetes
package loads tokens, certificates and OIDC. This module adds kubectl's search order,
impersonation, renewal while the operator runs, and errors that name the file and a hint.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import getproxies_environment

import structlog
from aiohttp.helpers import get_env_proxy_for_url
from multidict import CIMultiDict, CIMultiDictProxy
from yaml import MarkedYAMLError, YAMLError
from yarl import URL

from operator_runner.core.errors import ConfigError
from operator_runner.core.kubeconfig import (
    CREDENTIAL_PATHS,
    KubeconfigError,
    MergedKubeconfig,
    kubeconfig_files,
    read_kubeconfigs,
)
from operator_runner.core.model import Json
from operator_runner.kube.credential_files import (
    ConfigException,
    Configuration,
    incluster_config,
    kube_config,
)
from operator_runner.kube.exec_plugin import run_plugin

_RENEW_PERIOD_SECONDS = 60.0
"""Between two checks of a file of credentials, as in client-go."""
_MIN_PLUGIN_SECONDS = 1.0
"""Between two runs of a plugin because of its expiry. A 401 runs it at once."""
_USED_LIFETIME = 0.8
"""The part of its lifetime after which a plugin's answer is renewed, ahead of a request's 401."""
_FILES = ("tokenFile", "client-certificate", "certificate-authority")
"""Fields whose files are read again."""

_in_cluster: Any = incluster_config
_kube_config: Any = kube_config
"""The package is only partly typed; these modules are not."""

_LOAD_ERRORS = (
    ConfigException,
    ConfigError,
    YAMLError,
    OSError,
    AttributeError,
    KeyError,
    TypeError,
    ValueError,
)
"""The loader does not validate: an invalid file raises any of these."""

_OF_HEADER_NAMES = "!#$&'*+^`|"
"""What a header's name may have beside letters, digits, `-`, `.`, `_` and `~` (RFC 9110)."""
_CERTIFICATE_FILES = ("certificate-authority", *CREDENTIAL_PATHS[:2])
_EXCLUSIVE = (
    *((each, f"{each}-data") for each in _CERTIFICATE_FILES),
    *(("insecure-skip-tls-verify", f"certificate-authority{each}") for each in ("", "-data")),
    *((one, other) for one in ("token", "tokenFile") for other in ("username", "password")),
    ("auth-provider", "exec"),
)
"""Fields of which kubectl rejects both."""
_REMOVED_PROVIDERS = {"gcp": "gke-gcloud-auth-plugin", "azure": "kubelogin"}
"""Providers that client-go has removed, and the plugins that replace them."""

_log = structlog.get_logger(__name__)


class Credentials:
    """Server, namespace and TLS context; `header()` is the current Authorization header."""

    def __init__(self, configuration: Any, source: _Selected) -> None:
        """Take the kubernetes Configuration that `source` has loaded and can load again."""
        self.server: str = configuration.host.rstrip("/")
        self.namespace = source.namespace
        self.proxy = _proxy(configuration)
        self.tls_name: str | None = configuration.tls_server_name
        self.impersonation = CIMultiDictProxy(_impersonation(source.user))
        """The Impersonate-* headers of all requests; empty without `as`."""
        self.compression = not source.cluster.get("disable-compression")
        self.ssl_context, self._certificates = _ssl_context(configuration)
        self._configuration = configuration
        self._source = source
        self._lock = asyncio.Lock()

    async def header(self) -> str | None:
        """Return the Authorization header, renewed if necessary; None with a client certificate.

        A failed renewal is logged, and the old header is returned: it may still be valid.
        """
        if time.monotonic() >= self._source.renew_at:
            async with self._lock:
                if time.monotonic() >= self._source.renew_at:
                    await self._reload()
        return _header(self._configuration)

    async def renew(self) -> bool:
        """Load the credentials again after a 401; return whether they have changed.

        Renewed certificates are in a new `ssl_context`.
        """
        before = self._state()
        async with self._lock:
            if before == self._state():
                await self._reload()
        return before != self._state()

    def _state(self) -> tuple[str | None, bytes]:
        return _header(self._configuration), self._certificates

    async def _reload(self) -> None:
        try:
            configuration = await self._source.load()
            context, certificates = _ssl_context(configuration)
        except _LOAD_ERRORS as error:
            _log.warning("Cannot renew credentials", error=_problem(error))
            return
        self._configuration = configuration
        if certificates != self._certificates:
            self.ssl_context, self._certificates = context, certificates


@dataclass(slots=True)
class _Selected:
    """What a context of the kubeconfig selects, or a Pod has; loads it as often as needed.

    Paths are absolute.
    """

    cluster: Json
    user: Json
    namespace: str
    renew_at: float = 0.0
    """Of the monotonic clock; infinite if only a 401 runs the plugin again, as in kubectl."""

    async def load(self) -> Any:
        """Return a kubernetes Configuration. Raises any of _LOAD_ERRORS."""
        self.renew_at = time.monotonic() + _RENEW_PERIOD_SECONDS  # also after a failure
        user = _with_token(self.user)
        if _needs_plugin(user):
            found, expiry = await run_plugin(user["exec"], self.cluster)
            user = {**user, **found}
            self.renew_at = _renewal_time(expiry)
        elif not {"auth-provider", *_FILES} & {*user, *self.cluster}:
            self.renew_at = float("inf")
        config = {
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            "clusters": [{"name": "it", "cluster": self.cluster}],
            "users": [{"name": "it", "user": {k: v for k, v in user.items() if k != "exec"}}],
        }
        configuration = Configuration(host="")
        try:
            await _kube_config.KubeConfigLoader(config, "it").load_and_set(configuration)
        except _LOAD_ERRORS as error:
            field = "auth-provider of the user: " if "auth-provider" in user else ""
            raise ConfigError(f"{field}{_problem(error)}") from error
        return configuration


def _with_token(user: Json) -> Json:
    """Return a user as the package reads it: the token of its file, and both fields of Basic."""
    if {"username", "password"} & user.keys():
        user = {"username": "", "password": "", **user}
    if "token" in user and "tokenFile" in user:
        with suppress(OSError):  # then `token` is used, as with kubectl
            return {**user, "token": Path(user["tokenFile"]).read_text(encoding="utf-8")}
    return user


def _needs_plugin(user: Json) -> bool:
    """Return whether the plugin is run: other credentials of the user take precedence."""
    others = ("token", "tokenFile", "username", "password")
    certificates = ("client-certificate", "client-certificate-data")
    return "exec" in user and not {*others, *certificates} & user.keys()


def _renewal_time(expiry: datetime | None) -> float:
    if expiry is None:
        return float("inf")
    lifetime = (expiry - datetime.now(UTC)).total_seconds()
    return time.monotonic() + max(_MIN_PLUGIN_SECONDS, lifetime * _USED_LIFETIME)


def _impersonation(user: Json) -> CIMultiDict[str]:
    """Return the headers for `as`, `as-uid`, `as-groups` and `as-user-extra` of a user."""
    headers: CIMultiDict[str] = CIMultiDict()
    if "as" not in user:
        return headers
    headers["Impersonate-User"] = str(user["as"])
    if uid := user.get("as-uid"):
        headers["Impersonate-Uid"] = str(uid)
    for group in user.get("as-groups", ()):
        headers.add("Impersonate-Group", str(group))
    for key, values in user.get("as-user-extra", {}).items():
        for value in values:
            headers.add(f"Impersonate-Extra-{quote(key, safe=_OF_HEADER_NAMES)}", str(value))
    return headers


def is_impersonation(header: str) -> bool:
    """Return whether a header of this name impersonates."""
    return header.lower().startswith("impersonate-")


def _proxy(configuration: Any) -> URL | None:
    """Return the proxy to the API server: `proxy-url`, else HTTPS_PROXY.

    Looked up once: with trust_env, aiohttp does so for each request, in a thread.
    """
    if configuration.proxy is not None:
        return _checked_proxy(URL(configuration.proxy))
    server = URL(configuration.host)
    if _is_without_proxy(server):
        return None
    try:
        proxy, user = get_env_proxy_for_url(server)
    except LookupError:  # unset, or NO_PROXY contains the server
        return None
    _checked_proxy(proxy)
    return proxy if user is None else proxy.with_user(user.login).with_password(user.password)


def _checked_proxy(proxy: URL) -> URL:
    if proxy.scheme not in {"http", "https"} or not proxy.host:
        shown = proxy.with_user(None) if proxy.host else proxy
        raise ConfigError(
            f"unsupported proxy {shown} to the API server: expected http://HOST:PORT or "
            "https://HOST:PORT, in proxy-url of the cluster or HTTPS_PROXY"
        )
    return proxy


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
        return await _from_service_account()
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
        return list(read_kubeconfigs(kubeconfig_files(files[0])).contexts)
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


async def _from_service_account() -> Credentials:
    """Read the files in the Pod as those of a kubeconfig, as client-go does (rest/config.go)."""
    token, authority = Path(_in_cluster.SERVICE_TOKEN_FILENAME), _in_cluster.SERVICE_CERT_FILENAME
    names = (_in_cluster.SERVICE_HOST_ENV_NAME, _in_cluster.SERVICE_PORT_ENV_NAME)
    host, port = (os.environ.get(name, "") for name in names)
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    cluster = {"server": server, "certificate-authority": authority}
    try:
        namespace = token.with_name("namespace").read_text().strip()
        source = _Selected(cluster, {"tokenFile": str(token)}, namespace)
        return Credentials(await source.load(), source)
    except _LOAD_ERRORS as error:
        raise ConfigError(
            f"service account {token.parent}: {error}; set "
            "automountServiceAccountToken: true for the Pod, or set KUBECONFIG"
        ) from error


async def _from_files(files: str, source: str, context: str) -> Credentials:
    """Merge the files of a colon-separated list; `context` empty is the current one."""
    paths = kubeconfig_files(files)
    if not any(path.is_file() for path in paths):
        raise ConfigError(f"{source}={files}: no such file; set it to an existing kubeconfig")
    try:
        selected = _select(read_kubeconfigs(paths), context)
        return Credentials(await selected.load(), selected)
    except _LOAD_ERRORS as error:
        raise ConfigError(
            f"{source}={files}: {_problem(error)}; "
            f"compare with `KUBECONFIG={files} kubectl config view`"
        ) from error


def _select(config: MergedKubeconfig, context: str) -> _Selected:
    """Return cluster and user of a context, checked as client-go does. Raises KubeconfigError."""
    name = context or config.current
    names = ", ".join(config.contexts) or "none"
    if not name:
        raise KubeconfigError(
            f"no current-context; its contexts are {names}: set one with "
            "`kubectl config use-context NAME`, or --context"
        )
    if name not in config.contexts:
        raise KubeconfigError(f"unknown context {name}; its contexts are {names}")
    chosen = config.contexts[name]
    user_name, cluster_name = chosen.get("user"), chosen.get("cluster")
    cluster = config.clusters.get(str(cluster_name))
    if cluster is None:
        raise KubeconfigError(f"context {name}: unknown cluster {cluster_name} in clusters")
    user = config.users.get(str(user_name), None if user_name else {})
    if user is None:
        raise KubeconfigError(f"context {name}: unknown user {user_name} in users")
    _check_user(user, str(user_name))
    for entry, owner in ((cluster, f"cluster {cluster_name}"), (user, f"user {user_name}")):
        for both in _EXCLUSIVE:
            if set(both) <= entry.keys():
                raise KubeconfigError(f"{owner} has both {' and '.join(both)}: remove one of them")
        for name in _CERTIFICATE_FILES:
            try:
                Path(entry.get(name, os.devnull)).open("rb").close()
            except OSError as error:
                raise KubeconfigError(f"{owner}: {name}: {_problem(error)}") from error
    return _Selected(_with_server(cluster), user, str(chosen.get("namespace") or "default"))


def _with_server(cluster: Json) -> Json:
    """Return a cluster with the server as kubectl reads it: its scheme in lower case, no query."""
    server = cluster.get("server")
    if not server:
        raise KubeconfigError("the cluster of the current context has no server")
    with suppress(ValueError):
        url = URL(server)
        if url.scheme in {"https", "http"} and url.host:
            return {**cluster, "server": str(url.with_query(None).with_fragment(None))}
    raise KubeconfigError(f"invalid server {server}: write a URL such as https://127.0.0.1:6443")


def _check_user(user: Json, name: str) -> None:
    if "as" not in user and {"as-uid", "as-groups", "as-user-extra"} & user.keys():
        raise KubeconfigError(
            f"user {name} has as-uid, as-groups or as-user-extra without `as`: add the user to "
            "impersonate"
        )
    provider = user.get("auth-provider")
    if provider and provider["name"] != "oidc":
        plugin = _REMOVED_PROVIDERS.get(provider["name"])
        cure = f"with the command {plugin}" if plugin else "of your provider"
        raise KubeconfigError(
            f"user {name}: unknown auth-provider {provider['name']}: use `exec` {cure}"
        )
    pair = [each in user or f"{each}-data" in user for each in _CERTIFICATE_FILES[1:]]
    if any(pair) and not all(pair):
        raise KubeconfigError(
            f"user {name} has only one of client certificate and key: add the other"
        )


def _problem(error: Exception) -> str:
    """Describe an error of the loader, which trips over content that is not a kubeconfig."""
    match error:
        case KeyError():
            return f"missing key {error}"
        case TypeError() | AttributeError():
            return "invalid kubeconfig: a field of the cluster or of the user has the wrong type"
        case OSError(filename=str() as file):
            return f"cannot read {file}: {error.strerror}; correct its path in the kubeconfig"
        case MarkedYAMLError(problem_mark=mark) if mark is not None:
            return f"invalid YAML: line {mark.line + 1}: {error.problem}"
        case ConfigException() | ConfigError() | KubeconfigError() | YAMLError():
            return str(error)
    return f"{type(error).__name__}: {error}"


def _header(configuration: Any) -> str | None:
    key: str | None = configuration.api_key.get("BearerToken")
    return key.strip() if key else None


def _ssl_context(configuration: Any) -> tuple[ssl.SSLContext, bytes]:
    """Return the context for TLS, and the certificates in it."""
    field = "certificate-authority"
    try:
        context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
        if configuration.cert_file:
            field = "client-certificate or client-key"
            context.load_cert_chain(configuration.cert_file, configuration.key_file)
    except ssl.SSLError as error:
        reason = error.reason or "unreadable"
        raise ConfigError(f"{field}: {reason}: expected PEM, and base64 of it in -data") from error
    # Go, and so kubectl, accepts cluster CAs that fail X509_STRICT.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    files = filter(None, (configuration.ssl_ca_cert, configuration.cert_file))
    certificates = b"".join(Path(file).read_bytes() for file in files)
    # The package writes inline keys to temporary files; remove them at once.
    _kube_config._cleanup_temp_files()  # noqa: SLF001
    return context, certificates
