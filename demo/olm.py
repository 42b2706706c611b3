"""`make olm-demo`: OLM installs the nginx operator from a catalog, and upgrades it."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from demo import olm_images, olm_show, record
from demo.errors import DemoError
from demo.olm_install import Installation
from demo.steady_client import SteadyClient
from operator_runner.devcluster import Cluster
from operator_runner.devcluster.errors import ClusterError

FIRST, SECOND = "nginx-operator.v0.0.1", "nginx-operator.v0.0.2"
NAMESPACE = "nginx-operator-system"
_SAMPLE = {
    "apiVersion": "operator.example.com/v1alpha1",
    "kind": "NginxOperator",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {"port": 8080, "replicas": 2},
}


def cluster_name() -> str:
    """Name the cluster after this checkout; it is not that of `make demo`."""
    return f"olm-{record.cluster_name()}"


def main() -> int:
    """Show all of it; return the exit status."""
    console = Console(highlight=False)
    begin = time.monotonic()
    try:
        _show(console)
    except (DemoError, ClusterError) as error:
        console.print("\nThe demo failed:", style="bold red")
        console.print(str(error), markup=False, soft_wrap=True)
        console.print("Run `make olm-demo-down` to remove what was started.")
        return 1
    except KeyboardInterrupt:
        console.print("\nInterrupted; run `make olm-demo-down` to remove what was started.")
        return 130
    console.print(f"\nShown in {time.monotonic() - begin:.0f} s.", style="dim")
    return 0


def _show(console: Console) -> None:
    cluster = Cluster(cluster_name(), console=console)
    if cluster.home.path.exists():
        raise DemoError("The demo is up already", hint="make olm-demo-down")
    console.rule("Local cluster", align="left")
    cluster.up(install_packages=True)
    console.rule("OLM", align="left")
    cluster.install_olm()
    console.rule("Images, from this checkout", align="left")
    image = olm_images.nginx(console, cluster)
    operators = olm_images.operators(console, cluster)
    console.rule("Bundles and catalog", align="left")
    with tempfile.TemporaryDirectory() as folder:
        catalog = olm_images.catalog(console, operators, Path(folder))
        source = cluster.serve_catalog("nginx-operator", catalog)
    console.print(f"OLM has connected to the catalog, as CatalogSource {source}")
    _use(console, cluster, source, image)


def _use(console: Console, cluster: Cluster, source: str, image: str) -> None:
    installation = Installation(
        lambda arguments, text: _kubectl(cluster, *arguments, text=text),
        NAMESPACE,
        "nginx-operator",
        "alpha",
        source,
    )
    console.rule("Installation of 0.0.1", align="left")
    installation.subscribe(FIRST, {"RELATED_IMAGE_NGINX": image})
    olm_show.approve(console, installation, FIRST)
    olm_show.follow(console, installation, FIRST)
    console.rule("A resource, as v1alpha1", align="left")
    _kubectl(cluster, "apply", "--filename=-", text=json.dumps(_SAMPLE))
    url = olm_show.waiting(console, "The operator makes a Service", lambda: _url(cluster))
    olm_show.page(console, url)
    _print(console, cluster, "v1alpha1")
    console.rule("Upgrade to 0.0.2, while a client fetches from nginx", align="left")
    with SteadyClient(url) as client:
        olm_show.approve(console, installation, SECOND)
        olm_show.follow(console, installation, SECOND, client)
    style = "bold red" if client.failures else "bold green"
    counts = f"{client.fetched} requests answered, {len(client.failures)} failed"
    console.print(f"nginx during the upgrade: {counts}", style=style)
    console.rule("The same resource, as v1alpha2", align="left")
    _print(console, cluster, "v1alpha2")
    _print_next_steps(console, cluster)


def _kubectl(cluster: Cluster, *arguments: str, text: str | None = None) -> str:
    command = [str(cluster.bin / "kubectl"), *arguments]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise DemoError(f"kubectl {' '.join(arguments)} failed:\n{done.stderr.strip()}")
    return done.stdout


def _url(cluster: Cluster) -> str | None:
    found = _kubectl(cluster, "get", "service", "web", "--ignore-not-found", "--output=json")
    if not found:
        return None
    spec: dict[str, Any] = json.loads(found)["spec"]
    return f"http://{spec['clusterIP']}:{spec['ports'][0]['port']}/"


def _print(console: Console, cluster: Cluster, version: str) -> None:
    """Print the spec of the resource in a version of the API."""
    kind = f"nginxoperators.{version}.operator.example.com/web"

    def look() -> str | None:
        try:
            return _kubectl(cluster, "get", kind, "--output=jsonpath={.spec}")
        except DemoError:
            return None  # the API server serves a version some time after the CRD is changed

    spec = olm_show.waiting(console, f"The API gives {kind}", look)
    command = f"kubectl get {kind} --output=jsonpath='{{.spec}}'"
    console.print(command, style="dim", markup=False, soft_wrap=True)
    console.print(spec, markup=False, soft_wrap=True)


def _print_next_steps(console: Console, cluster: Cluster) -> None:
    environment = f'eval "$(.venv/bin/operator-runner cluster env --name {cluster.name})"'
    hints = (
        ("Have kubectl talk to the cluster", [environment]),
        (
            "Look at what OLM made",
            [
                f"kubectl get subscriptions,installplans,csv,operatorconditions -n {NAMESPACE}",
                f"kubectl logs -n {NAMESPACE} deployment/nginx-operator-controller-manager",
            ],
        ),
        ("Read OLM's own logs", [f"less {cluster.home.logs}/olm-operator.log"]),
        ("Stop", ["make olm-demo-down"]),
    )
    console.rule("Try next", align="left")
    for title, commands in hints:
        console.print(f"{title}:", style="bold")
        for command in commands:
            console.print(f"    {command}", markup=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
