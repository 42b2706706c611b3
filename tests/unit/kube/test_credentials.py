"""Sources of credentials, and errors for those that cannot be used."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from operator_runner.core.errors import ConfigError
from operator_runner.kube.credentials import contexts, load


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Take every place away where credentials are found; return the home directory."""
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def _config(server: str, namespace: str | None = None) -> dict[str, Any]:
    context = {"cluster": "c", "user": "u"} | ({"namespace": namespace} if namespace else {})
    return {
        "current-context": "x",
        "contexts": [{"name": "x", "context": context}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }


def _write(file: Path, config: Any) -> Path:
    file.parent.mkdir(exist_ok=True)
    file.write_text(config if isinstance(config, str) else json.dumps(config))
    return file


async def test_places_are_tried_in_kubectls_order(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flag beats KUBECONFIG, which beats the file in the home directory."""
    _write(nowhere / ".kube" / "config", _config("http://home", "n"))
    found = await load(None)
    assert (found.server, found.namespace) == ("http://home", "n")

    monkeypatch.setenv("KUBECONFIG", str(_write(nowhere / "env", _config("http://env/"))))
    found = await load(None)
    assert (found.server, found.namespace) == ("http://env", "default")

    # The scheme counts without case, and a query is dropped.
    found = await load(_write(nowhere / "flag", _config("HTTP://flag/k8s/one/?a=b")))
    assert (found.server, await found.header()) == ("http://flag/k8s/one", "Bearer t")


async def test_a_context_selects_server_user_and_namespace(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in kubectl, also in a Pod, whose service account has no contexts."""
    config = _config("http://first")
    config["clusters"].append({"name": "d", "cluster": {"server": "http://second"}})
    config["contexts"].append(
        {"name": "y", "context": {"cluster": "d", "user": "u", "namespace": "n"}}
    )
    _write(nowhere / ".kube" / "config", config)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    found = await load(None, "y")
    assert (found.server, found.namespace) == ("http://second", "n")
    assert contexts(None) == ["x", "y"]
    with pytest.raises(ConfigError, match="unknown context z; its contexts are x, y"):
        await load(None, "z")


async def test_the_proxy_is_the_kubeconfigs_or_the_environments(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`proxy-url` beats HTTPS_PROXY if set; that counts unless NO_PROXY names the server."""
    for name in ("https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://me:secret@env:1")
    monkeypatch.setenv("NO_PROXY", ".inside")
    config = _config("https://api.outside:6443")

    async def proxy() -> str:
        return str((await load(_write(nowhere / "config", config))).proxy)

    assert await proxy() == "http://me:secret@env:1"
    config["clusters"][0]["cluster"]["proxy-url"] = "http://file:2"
    assert await proxy() == "http://file:2"
    config["clusters"][0]["cluster"]["proxy-url"] = ""
    assert await proxy() == "http://me:secret@env:1"
    config["clusters"][0]["cluster"] = {"server": "https://api.inside:6443"}
    assert await proxy() == "None"


@pytest.mark.parametrize(
    ("server", "no_proxy", "is_used"),
    [
        ("https://127.0.0.1:6443", "", False),
        ("https://127.8.0.1:6443", "", False),
        ("https://[::1]:6443", "", False),
        ("https://localhost:6443", "", False),
        ("https://localhost.outside:6443", "", True),
        ("https://172.30.0.1:443", ".svc, 172.30.0.0/16 ,10.0.0.1", False),
        ("https://172.31.0.1:443", ".svc,172.30.0.0/16", True),
        ("https://172.30.0.1:443", "172.30.0.1", False),
        ("https://172.30.0.1:8443", "172.30.0.1:8443", False),
        ("https://172.30.0.1:443", "172.30.0.1:443", False),
        ("https://api.outside:6443", "api.outside:6443", False),
        ("https://172.30.0.1:8443", "172.30.0.1:6443", True),
        ("https://172.30.0.1:443", "fd00::/8,no network/8,*.svc", True),
        ("https://[fd00::1]:443", "fd00::/8", False),
        ("https://api.outside:443", "172.30.0.0/16", True),
        ("https://api.outside:443", "outside", False),
        ("https://api.outside:443", "*", False),
    ],
)
async def test_servers_of_loopback_and_networks_of_no_proxy_have_no_proxy(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch, server: str, no_proxy: str, is_used: bool
) -> None:
    """As with kubectl: a local cluster behind a web proxy, and the API server in a Pod."""
    for name in ("https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://env:1")
    monkeypatch.setenv("NO_PROXY", no_proxy)
    found = await load(_write(nowhere / "config", _config(server)))
    assert (str(found.proxy) == "http://env:1") == is_used


async def test_the_error_of_a_pod_without_token_names_the_field(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a Pod, a missing token is a matter of automountServiceAccountToken."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")

    with pytest.raises(ConfigError, match="automountServiceAccountToken"):
        await load(None)


async def test_the_error_without_credentials_names_all_sources() -> None:
    """The places that were tried are in the error."""
    with pytest.raises(ConfigError, match="set --kubeconfig FILE or KUBECONFIG"):
        await load(None)


@pytest.mark.parametrize("source", ["--kubeconfig", "KUBECONFIG"])
async def test_a_file_that_does_not_exist_is_named(
    source: str, nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other source is tried instead of the requested one."""
    _write(nowhere / ".kube" / "config", _config("http://home"))
    monkeypatch.setenv("KUBECONFIG", "/absent")

    with pytest.raises(ConfigError, match=f"{source}=/absent: no such file"):
        await load(Path("/absent") if source == "--kubeconfig" else None)


def _without(*keys: str) -> dict[str, Any]:
    config = _config("https://there")
    inner: Any = config
    for key in keys[:-1]:
        inner = inner[key] if isinstance(inner, dict) else inner[0][key]
    (inner if isinstance(inner, dict) else inner[0]).pop(keys[-1])
    return config


def _with_user(**user: Any) -> dict[str, Any]:
    return {**_config("https://a"), "users": [{"name": "u", "user": user}]}


def _with_cluster(**cluster: Any) -> dict[str, Any]:
    found = {"server": "https://a", **cluster}
    return {**_config(""), "clusters": [{"name": "c", "cluster": found}]}


def _with_plugin(script: str = "", **fields: Any) -> dict[str, Any]:
    plugin = {"apiVersion": _VERSION, "command": "sh", "args": ["-c", script], **fields}
    return _with_user(exec=plugin)


_VERSION = "client.authentication.k8s.io/v1"
_ANSWER = json.dumps({"apiVersion": _VERSION, "kind": "ExecCredential", "status": {}})
_KEY = json.dumps({"clientKeyData": "k"})
_NOT_PEM = "bm90IFBFTQ=="


@pytest.mark.parametrize(
    ("config", "message"),
    [
        pytest.param("", "no current-context; its contexts are none", id="empty"),
        pytest.param("- a\n", "expected a map of kind Config with the lists", id="a list"),
        pytest.param("text\n", "expected a map of kind Config with the lists", id="a text"),
        pytest.param({**_config("https://a"), "users": 3}, "each of maps", id="users is a number"),
        pytest.param({**_config("https://a"), "kind": "Pod"}, "a map of kind Config", id="kind"),
        pytest.param("{", "invalid YAML: line .: did not find", id="no YAML"),
        pytest.param(_without("current-context"), "current-context", id="no context chosen"),
        pytest.param(_without("contexts"), "contexts", id="no contexts"),
        pytest.param(_without("clusters"), "clusters", id="no clusters"),
        pytest.param(_without("clusters", "cluster", "server"), "no server", id="no server"),
        *(
            pytest.param(_config(server), "invalid server .*: write a URL such as", id=server)
            for server in ("127.0.0.1:6443", "ftp://a", "https://", "https://a:port")
        ),
        pytest.param(
            {**_config("https://a"), "current-context": "y"},
            "unknown context y",
            id="unknown context",
        ),
        pytest.param(_without("users"), "context x: unknown user u", id="unknown user"),
        pytest.param(_with_user(**{"as-groups": ["g"]}), "without `as`: add the", id="groups"),
        *(
            pytest.param(
                _with_user(**{"as": "a", field: value}), f"{field} must be {kind}", id=kind
            )
            for field, value, kind in (
                ("as-groups", "system:masters", "a list"),
                ("as-user-extra", ["a"], "a map"),
                ("token", 3, "a string, with quotes"),
                ("exec", ["a"], "a map"),
            )
        ),
        pytest.param(
            _with_cluster(**{"insecure-skip-tls-verify": "false"}),
            "insecure-skip-tls-verify must be true or false, without quotes",
            id="a text for a boolean",
        ),
        pytest.param(
            _with_cluster(**{"insecure-skip-tls-verify": True, "certificate-authority": "ca"}),
            "cluster c has both insecure-skip-tls-verify and certificate-authority",
            id="a needless authority",
        ),
        *(
            pytest.param(_with_user(**dict.fromkeys(both, "x")), "user u has both", id=both[0])
            for both in (
                ("tokenFile", "password"),
                ("client-certificate", "client-certificate-data", "client-key"),
            )
        ),
        pytest.param(
            _with_user(**{"auth-provider": {"name": "gcp"}}),
            "auth-provider gcp: use `exec` with the command gke-gcloud-auth-plugin",
            id="provider",
        ),
        pytest.param(_with_user(**{"client-key": "k"}), "only one of client", id="key"),
        pytest.param(
            _with_user(**{"client-certificate": "absent", "client-key": "k"}),
            "user u: client-certificate: cannot read .*/absent: No such file or directory",
            id="no certificate",
        ),
        pytest.param(
            _with_cluster(**{"certificate-authority-data": _NOT_PEM}),
            "certificate-authority: NO_CERTIFICATE_OR_CRL_FOUND: expected PEM",
            id="an authority that is not PEM",
        ),
        pytest.param(
            _with_user(**{"client-certificate-data": _NOT_PEM, "client-key-data": _NOT_PEM}),
            "client-certificate or client-key: .*: expected PEM",
            id="a certificate that is not PEM",
        ),
        pytest.param(
            _with_user(**{"auth-provider": {"name": "oidc", "config": {"id-token": "a.b.c"}}}),
            "auth-provider of the user: ",
            id="token of OIDC",
        ),
        pytest.param(
            _with_user(tokenFile="absent"),
            "cannot read .*/absent: No such file or directory; correct its path",
            id="no file",
        ),
        pytest.param(_with_plugin(apiVersion="v1"), "invalid apiVersion of exec sh", id="version"),
        pytest.param(_with_plugin(interactiveMode="Always"), "asks on a terminal", id="terminal"),
        pytest.param(_with_plugin(interactiveMode="If"), "expected one of IfAva", id="mode"),
        pytest.param(_with_plugin("echo x"), "expected an ExecCredential", id="output"),
        pytest.param(_with_plugin("echo {}"), "expected an ExecCredential", id="empty output"),
        pytest.param(
            _with_plugin(f"echo '{_ANSWER}'"), "neither token nor certificate", id="no credentials"
        ),
        pytest.param(
            _with_plugin(f"echo '{_ANSWER.replace('{}', _KEY)}'"), "only one of", id="only a key"
        ),
    ],
)
async def test_the_error_of_an_unusable_file_has_the_reason(
    nowhere: Path, config: dict[str, Any] | str, message: str
) -> None:
    """The error names the file, the trouble, and the command that shows what kubectl reads."""
    file = _write(nowhere / "broken", config)

    with pytest.raises(ConfigError, match=message) as caught:
        await load(file)

    assert str(file) in str(caught.value)
    assert "kubectl config view" in str(caught.value)
    assert "NoneType" not in str(caught.value)


@pytest.mark.parametrize("hint", ["", "brew install it\x1b[1m"])
async def test_a_missing_credential_plugin_is_named(nowhere: Path, hint: str) -> None:
    """The error has the program and the solution, that of the kubeconfig if it has one."""
    config = _with_plugin(command="absent-login", installHint=hint)
    cure = r"brew install it\\x1b\[1m" if hint else "install it, or add its directory to PATH"

    message = r"cannot start the credential plugin absent-login \(No such file or directory\)"
    with pytest.raises(ConfigError, match=f"{message}: {cure}"):
        await load(_write(nowhere / "plugin", config))


@pytest.mark.parametrize(
    ("user", "header"),
    [
        ({"token": "t", "exec": {"command": "false"}}, "Bearer t"),
        ({"token": "t", "tokenFile": "file"}, "Bearer of the file"),
        ({"token": "t", "tokenFile": "absent"}, "Bearer t"),
        ({"token": "", "tokenFile": "file"}, "Bearer of the file"),
        ({"password": "p"}, "Basic OnA="),
    ],
)
async def test_the_credential_that_kubectl_uses_is_used(
    nowhere: Path, user: dict[str, Any], header: str
) -> None:
    """A user with several credentials has the same order as in kubectl."""
    (nowhere / "file").write_text("of the file\n")
    found = await load(_write(nowhere / "config", _with_user(**user)))
    assert await found.header() == header


async def test_proxies_that_cannot_be_used_are_an_error(nowhere: Path) -> None:
    """A SOCKS proxy is refused at once instead of at each request."""
    config = _config("https://a")
    config["clusters"][0]["cluster"]["proxy-url"] = "socks5://me:secret@there:1"
    with pytest.raises(ConfigError, match="unsupported proxy socks5://there:1 to the API server"):
        await load(_write(nowhere / "config", config))


@pytest.mark.parametrize(
    ("mode", "is_terminal", "interactive"),
    [("IfAvailable", True, True), ("IfAvailable", False, False), ("Never", True, False)],
)
async def test_a_plugin_may_ask_on_a_terminal_if_its_mode_permits(
    nowhere: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    is_terminal: bool,
    interactive: bool,
) -> None:
    """The plugin gets its variables, and whether it may ask."""
    # As for kubectl, YAML is an answer too, and a variable may have no value.
    answer = f"apiVersion: {_VERSION}\\nkind: ExecCredential\\nstatus: {{token: %s}}"
    script = (
        f'printf \'{answer}\' "$GREETING$EMPTY"; printf %s "$KUBERNETES_EXEC_INFO" > {nowhere}/in'
    )
    env = [{"name": "GREETING", "value": "hello"}, {"name": "EMPTY"}]
    controller, terminal = os.openpty()
    with open(terminal if is_terminal else os.devnull, "rb") as stdin, open(controller, "rb"):  # noqa: PTH123, ASYNC230
        monkeypatch.setattr(sys, "stdin", stdin)
        found = await load(
            _write(nowhere / "config", _with_plugin(script, env=env, interactiveMode=mode))
        )
    assert await found.header() == "Bearer hello"
    spec = json.loads((nowhere / "in").read_text())["spec"]
    assert spec == {"interactive": interactive}
