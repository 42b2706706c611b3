"""The cluster that the demo runs on: one of its own, or the user's."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from demo import kubectl, record
from demo.errors import DemoError
from operator_runner.devcluster import Cluster, pack

IMAGE_FILE = record.ROOT / "demo" / "nginx-image.yaml"
_RUNNER = str(Path(sys.executable).with_name("operator-runner"))


@dataclass(frozen=True, slots=True)
class Target:
    """The cluster of the demo. With `kubeconfig` None, kubectl uses its own default.

    `image` is what nginx runs from; None leaves it to the environment and the role's default.
    """

    local: bool
    kubeconfig: str | None
    image: str | None


def local(console: Console) -> Target:
    """Start the demo's own cluster, or check it, and give it the image of nginx."""
    name = record.cluster_name()
    console.rule("Local cluster", align="left")
    _runner("cluster", "up", "--name", name, "--install-packages")
    cluster = Cluster(name)
    kubectl.write_wrapper(cluster.bin / "kubectl", None)
    return Target(True, str(cluster.kubeconfig), _image(console, cluster))


def current(console: Console) -> Target:
    """Use the cluster of the user's kubectl."""
    console.rule("Your cluster", align="left")
    program, kubeconfig = kubectl.of_user(os.environ)
    kubectl.write_wrapper(program, kubeconfig)
    console.print(kubectl.run("config", "current-context").strip(), highlight=False)
    kubectl.run("version", "--output=json")  # fails at once if the cluster cannot be reached
    return Target(False, kubeconfig, None)


def _image(console: Console, cluster: Cluster) -> str:
    """Give the node an image of nginx, packed from Debian's packages the first time."""
    console.print("Giving the node an image of nginx, made of Debian's packages", style="dim")
    archive = record.FOLDER / "nginx.tar"
    pack(IMAGE_FILE, archive)
    (name,) = cluster.load(archive)
    archive.unlink()
    return name


def _runner(*arguments: str) -> None:
    """Run operator-runner as the user would, its progress on the terminal."""
    # Its progress and errors go to standard error; its output, the kubeconfig, is not needed.
    done = subprocess.run([_RUNNER, *arguments], stdout=subprocess.DEVNULL, check=False)
    if done.returncode:
        # The error and its hint are already printed.
        raise DemoError(f"operator-runner {' '.join(arguments)} failed, see above")
