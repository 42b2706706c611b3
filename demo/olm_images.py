"""Build what OLM installs in the demo: images, bundles, and a catalog of them."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from demo import record
from demo.errors import DemoError
from operator_runner.devcluster import Cluster, pack
from tests.support.image_building import Builder

RELEASES = {"0.0.1": record.ROOT / "releases" / "0.0.1", "0.0.2": record.ROOT}
"""The nginx operator's versions, and where each has its watches.yaml and its roles."""
_NGINX = record.ROOT / "demo" / "nginx-image.yaml"
_RUNNER = str(Path(sys.executable).with_name("operator-runner"))


def nginx(console: Console, cluster: Cluster) -> str:
    """Give the node an image of nginx; return its name."""
    with console.status("Packing an image of nginx"), tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "nginx.tar"
        pack(_NGINX, archive)
        (name,) = cluster.load(archive)
    console.print(f"{name}, of Debian's packages")
    return name


def operators(console: Console, cluster: Cluster) -> dict[str, str]:
    """Build the image of each version and give them to the node; return them by version."""
    console.print("Building the base image and the nginx operator; this takes minutes")
    with tempfile.TemporaryDirectory() as folder:
        builder = Builder(Path(folder))
        with console.status("Building the images"):
            builder.provide_base()
            images = builder.build_operators(record.ROOT, RELEASES)
        for version, image in images.items():
            with console.status(f"Giving {image} to the node"):
                archive = builder.save(image, Path(folder) / f"{version}.tar")
                cluster.load(archive)
                archive.unlink()
            console.print(f"{image}, by nginx.Dockerfile")
    return images


def catalog(console: Console, images: Mapping[str, str], folder: Path) -> Path:
    """Make the bundle of each version in `folder`, and a catalog of both; return the catalog."""
    bundles = []
    for version, project in RELEASES.items():
        bundles.append(str(folder / version))
        options = [f"--version={version}", f"--image={images[version]}"]
        _runner(console, "bundle", str(project), *options, f"--output={bundles[-1]}")
    _runner(console, "catalog", *bundles, f"--output={folder / 'catalog'}")
    return folder / "catalog"


def _runner(console: Console, *arguments: str) -> None:
    shown = " ".join(["operator-runner", *arguments])
    console.print(shown, style="dim", markup=False, soft_wrap=True)
    done = subprocess.run([_RUNNER, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise DemoError(f"{shown} failed:\n{(done.stderr or done.stdout).strip()}")
