"""Access to metrics and proxy with the flags of existing projects."""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.request

from operator_runner.core.installation import commit
from tests.support.kubectl import Kubectl
from tests.support.operator import Operator, free_port
from tests.support.waiting import eventually

KIND = "echoes.test.example.com"
ECHO = {"apiVersion": "test.example.com/v1", "kind": "Echo", "metadata": {"name": "a"}, "spec": {}}


def fetch(url: str, authorization: str = "", body: object = None) -> tuple[int, str]:
    """Send a request as a scraper or a sidecar does; certificates are not checked."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    headers = {"Authorization": authorization} if authorization else {}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        url, data, headers | {"Content-Type": "application/json"} if data else headers
    )
    tls = context if url.startswith("https") else None
    try:
        with urllib.request.urlopen(request, timeout=30, context=tls) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_metrics_are_protected_and_the_proxy_is_open(kubectl: Kubectl, operator: Operator) -> None:
    """The flags that scaffolds set guard metrics; sidecars of existing projects use the proxy.

    Objects that a sidecar creates for a resource are owned by it, and their changes start a run.
    """
    reader = f"reader-{kubectl.namespace}"
    kubectl("create", "clusterrole", reader, "--verb=get", "--non-resource-url=/metrics")
    kubectl("create", "serviceaccount", "reader")
    account = f"--serviceaccount={kubectl.namespace}:reader"
    kubectl("create", "clusterrolebinding", reader, f"--clusterrole={reader}", account)
    token = kubectl.token("reader")
    metrics, proxy = free_port(), free_port()
    operator.start(
        f"--metrics-bind-address=127.0.0.1:{metrics}",
        "--metrics-secure",
        "--metrics-require-rbac",
        f"--proxy-port={proxy}",
        "--proxy-allow-anonymous",
    )
    _check_metrics(f"https://127.0.0.1:{metrics}/metrics", token)
    kubectl.apply(ECHO)
    eventually(
        lambda: len(operator.lines("Reconciled")), lambda runs: runs >= 1, details=operator.log
    )
    _check_proxy(f"http://localhost:{proxy}", kubectl, operator)
    kubectl("delete", "clusterrole,clusterrolebinding", reader)


def _check_metrics(url: str, token: str) -> None:
    assert fetch(url) == (401, "Unauthorized\n")
    status, text = fetch(url, f"Bearer {token}")
    assert status == 200
    assert f'ansible_operator_build_info{{commit="{commit()}"' in text
    assert 'rest_client_requests_total{code="200",host="127.0.0.1:' in text


def _check_proxy(server: str, kubectl: Kubectl, operator: Operator) -> None:
    body = kubectl.get(KIND, "a")
    assert body is not None
    owner = {key: body["metadata"][key] for key in ("name", "uid", "namespace")}
    owner |= {key: body[key] for key in ("apiVersion", "kind")}
    user = base64.b64encode(json.dumps(owner).encode()).decode()
    basic = "Basic " + base64.b64encode(f"{user}:unused".encode()).decode()
    secrets = f"{server}/api/v1/namespaces/{kubectl.namespace}/secrets"
    status, made = fetch(secrets, basic, {"metadata": {"name": "by-a-sidecar"}})
    assert status == 201
    assert json.loads(made)["metadata"]["ownerReferences"][0]["uid"] == owner["uid"]
    assert fetch(f"{secrets}/by-a-sidecar")[0] == 200
    (warning,) = operator.lines(
        "Any process in the Pod's network namespace has the operator's permissions"
    )
    assert warning["level"] == "warning"
    kubectl("delete", "secret", "by-a-sidecar")
    eventually(
        lambda: "; ".join(line["cause"] for line in operator.lines("Reconciled")),
        lambda causes: f"Secret {kubectl.namespace}/by-a-sidecar deleted" in causes,
        details=operator.log,
    )
