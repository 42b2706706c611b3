"""Load images into the node."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

from operator_runner.devcluster import system_programs
from operator_runner.devcluster.errors import ClusterError, ImageError
from operator_runner.devcluster.namespaces import entering
from operator_runner.devcluster.state import Node


def load(node: Node, archive: Path) -> tuple[str, ...]:
    """Import a docker or OCI archive into the node; return the names of its images."""
    names = names_in(archive)
    # By standard input: the node needs no access to the file.
    command = ("ctr", "--namespace=k8s.io", "images", "import", "-")
    try:
        system_programs.run(*entering(node), *command, stdin=archive)
    except ClusterError as error:
        raise ImageError(f"{archive} could not be loaded: {error.problem}") from error
    return names


def names_in(archive: Path) -> tuple[str, ...]:
    """Return the names of the images in a docker or OCI archive."""
    hint = "`docker save`, `podman save` and `operator-runner cluster pack` write such archives."
    try:
        with tarfile.open(archive) as tar:
            names = _docker_names(tar) or _oci_names(tar)
    except (OSError, tarfile.TarError, ValueError) as error:
        raise ImageError(f"{archive}: invalid image archive: {error}", hint=hint) from error
    if not names:
        raise ImageError(f"{archive}: no named image in the archive", hint=hint)
    return names


def _docker_names(tar: tarfile.TarFile) -> tuple[str, ...]:
    manifest = _json(tar, "manifest.json") or []
    return tuple(name for image in manifest for name in image.get("RepoTags") or ())


def _oci_names(tar: tarfile.TarFile) -> tuple[str, ...]:
    index = _json(tar, "index.json") or {}
    annotations = [entry.get("annotations", {}) for entry in index.get("manifests", ())]
    found = (entry.get("io.containerd.image.name") for entry in annotations)
    return tuple(name for name in found if name)


def _json(tar: tarfile.TarFile, name: str) -> Any:
    """Return the parsed member `name`, or None if it does not exist."""
    if name not in tar.getnames():
        return None
    stream = tar.extractfile(name)
    return None if stream is None else json.load(stream)
