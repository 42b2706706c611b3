"""Show the result: the Deployment, the answer of nginx, the resource's conditions."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from demo import kubectl, record
from demo.errors import DemoError, TimedOut
from demo.fetch import command_for, fetch
from demo.target import Target

_AVAILABLE_SECONDS = 180.0  # a cluster of the user's has to fetch the image
_HTTP_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Sample:
    """The sample resource."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """As the operator's log names it."""
        return f"NginxOperator {self.namespace}/{self.name}"


def show_deployment(console: Console, sample: Sample) -> None:
    """Wait until the Deployment is available, and print that."""

    def available() -> dict[str, Any] | None:
        deployment = kubectl.get("deployment", sample.name, "--namespace", sample.namespace)
        status = (deployment or {}).get("status", {})
        desired = (deployment or {}).get("spec", {}).get("replicas")
        return deployment if desired == status.get("availableReplicas", 0) else None

    console.print(f"Waiting until Deployment {sample.name} is available ...", style="dim")
    try:
        deployment = kubectl.wait_for(
            f"Deployment {sample.name} is available", available, _AVAILABLE_SECONDS
        )
    except TimedOut as error:
        raise DemoError(
            f"{error.problem}; the latest events of namespace {sample.namespace}:\n"
            + _latest_events(sample.namespace),
            hint=f"read the events of its Pods: bin/kubectl describe pods -n {sample.namespace}",
        ) from None
    image = deployment["spec"]["template"]["spec"]["containers"][0]["image"]
    ready = deployment["status"].get("availableReplicas", 0)
    desired = deployment["spec"]["replicas"]
    console.print(f"Deployment {sample.name}: {ready} of {desired} available, image {image}")


def show_http(console: Console, target: Target, sample: Sample) -> str:
    """Fetch a page through the Service, print it, and return a command that does the same."""
    service = kubectl.get("service", sample.name, "--namespace", sample.namespace)
    if service is None:
        raise DemoError(f"The Service {sample.name} does not exist", log=record.LOG)
    port = service["spec"]["ports"][0]["port"]
    if not target.local:
        # The cluster's network is elsewhere; the API server passes the request on.
        path = f"/api/v1/namespaces/{sample.namespace}/services/{sample.name}:{port}/proxy/"
        kubectl.wait_for("nginx answers", lambda: _raw(path), _HTTP_SECONDS)
        console.print(f"HTTP 200 from nginx, through Service {sample.name} port {port}")
        return f"bin/kubectl get --raw {path}"
    url = f"http://{service['spec']['clusterIP']}:{port}/"
    answer = kubectl.wait_for(f"nginx answers on {url}", lambda: _fetch(url), _HTTP_SECONDS)
    console.print(f"{answer} through Service {sample.name}, {url}")
    return command_for(url)


def wait_available(sample: Sample) -> None:
    """Wait until the operator has noticed that the Deployment is available."""

    def available() -> str | None:
        found = {each["type"]: each["status"] for each in _conditions(sample)}
        return found["Available"] if found.get("Available") == "True" else None

    kubectl.wait_for(f"{sample} is Available", available, _HTTP_SECONDS)


def show_conditions(console: Console, sample: Sample) -> None:
    """Print the conditions of the resource."""
    message = Column("message", overflow="fold")
    table = Table("condition", "status", "reason", message, box=None, pad_edge=False)
    for condition in _conditions(sample):
        keys = ("type", "status", "reason", "message")
        table.add_row(*(str(condition.get(key, "")) for key in keys))
    console.print(table)


def _conditions(sample: Sample) -> list[dict[str, Any]]:
    body = kubectl.get("nginxoperator", sample.name, "--namespace", sample.namespace) or {}
    return list(body.get("status", {}).get("conditions", ()))


def _latest_events(namespace: str) -> str:
    columns = "custom-columns=OBJECT:.involvedObject.name,REASON:.reason,MESSAGE:.message"
    text = kubectl.run("get", "events", f"--namespace={namespace}", f"--output={columns}")
    return "\n".join(text.splitlines()[-8:])


def _fetch(url: str) -> str | None:
    try:
        answer = fetch(url)
    except (OSError, HTTPException):
        return None  # the rules of the Service take a moment
    if answer.status != HTTPStatus.OK:
        raise DemoError(f"{url} answers {answer.status}:\n{answer.body}")
    return f"HTTP {answer.status} from {answer.server}"


def _raw(path: str) -> str | None:
    try:
        return kubectl.run("get", "--raw", path)
    except DemoError:
        return None
