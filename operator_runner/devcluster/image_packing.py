"""Build images from Debian packages, Go modules and the programs of the local cluster.

Neither a registry nor root is needed.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from operator_runner.devcluster import (
    binaries,
    files,
    go_programs,
    image_archive,
    image_spec,
    system_programs,
)
from operator_runner.devcluster.errors import ClusterError, ImageError
from operator_runner.devcluster.image_archive import Layer
from operator_runner.devcluster.image_spec import ImageSpec
from operator_runner.devcluster.locations import cache_folder

# Part of the cache key: raise it when the same specification gives another archive.
_FORMAT = 1
PAUSE_SPEC = Path(__file__).with_name("pause-image.yaml")


def pack(source: Path, target: Path, environment: Mapping[str, str] = os.environ) -> ImageSpec:
    """Write the image that the file `source` describes to `target`; return what it describes.

    An unchanged specification is served from the cache. Delete the cache folder's `images` to
    get newer packages of Debian.
    """
    spec, cached = packed(source, environment)
    target.parent.mkdir(parents=True, exist_ok=True)
    files.write(target, cached.read_bytes(), mode=0o644)
    return spec


def packed(source: Path, environment: Mapping[str, str]) -> tuple[ImageSpec, Path]:
    """Return the image that `source` describes, and its archive in the cache."""
    try:
        text = source.read_text()
    except OSError as error:
        raise ImageError(f"{source}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ImageError(f"{source}: cannot be read: {error}") from error
    spec = image_spec.parse(text, str(source))
    folder = files.private_folder(cache_folder(environment) / "images")
    debian = _command("dpkg", "--print-architecture").strip()
    kubernetes = _kubernetes_programs(spec, environment)
    digest = hashlib.sha256(f"{_FORMAT}\n{debian}\n{text}".encode())
    for content in kubernetes.values():
        digest.update(content)
    key = digest.hexdigest()[:16]
    cached = folder / f"{key}.tar"
    # Of several commands that need the same image, one makes it.
    with files.locked(folder / f"{key}.lock"):
        if not cached.exists():
            _build(spec, debian, kubernetes, cached)
    return spec, cached


def _kubernetes_programs(spec: ImageSpec, environment: Mapping[str, str]) -> dict[str, bytes]:
    """Return the programs of Kubernetes in an image, by their paths in it."""
    if not spec.kubernetes:
        return {}
    folder = binaries.find(
        [program.name for program in spec.kubernetes],
        environment,
        Console(stderr=True, highlight=False),
    )
    try:
        return {each.path: (folder / each.name).read_bytes() for each in spec.kubernetes}
    except FileNotFoundError as error:
        known = ", ".join(sorted(path.name for path in folder.iterdir()))
        raise ImageError(
            f"{spec.tag}: the local cluster has no program {Path(error.filename).name}",
            hint=f"`kubernetes` may have: {known}.",
        ) from error


def _build(spec: ImageSpec, debian: str, kubernetes: Mapping[str, bytes], target: Path) -> None:
    layer = Layer()
    labels = {"architecture": image_archive.architecture(debian)}
    with tempfile.TemporaryDirectory() as folder:
        for archive in _download(spec, Path(folder)):
            fields = ("Package", "Version")
            shown = _command("dpkg-deb", "--field", str(archive), *fields)
            values = [line.partition(": ")[2] for line in shown.splitlines()]
            labels[f"debian.{values[0]}"] = values[1]
            layer.add_package(_tar_of(archive))
    for program in spec.programs:
        with tempfile.TemporaryDirectory() as folder:
            console = Console(stderr=True, highlight=False)
            layer.add_program(program.path, go_programs.build(program, Path(folder), console))
    for path, content in kubernetes.items():
        layer.add_program(path, content)
    for extra in spec.extras:
        layer.add(extra)
    image_archive.write(spec, layer, labels, target)


def _download(spec: ImageSpec, folder: Path) -> list[Path]:
    """Download the packages of `spec` into `folder`; return them in the order of the list."""
    if not spec.packages:
        return []
    wanted = sorted({name for alternatives in spec.packages for name in alternatives})
    known = available(_command("apt-cache", "policy", *wanted))
    names = [_first_known(alternatives, known) for alternatives in spec.packages]
    # Root may download too, because no other user can write to the folder.
    _command("apt-get", "-o", "APT::Sandbox::User=root", "download", *names, folder=folder)
    # Files are called NAME_VERSION_ARCHITECTURE.deb.
    return [next(folder.glob(f"{name}_*.deb")) for name in names]


def available(policy: str) -> frozenset[str]:
    """Return the packages that can be downloaded, from what `apt-cache policy` prints."""
    found, name = set(), ""
    for line in policy.splitlines():
        if not line.startswith(" "):
            name = line.rstrip(":")
        elif line.startswith("  Candidate: ") and not line.endswith("(none)"):
            found.add(name)
    return frozenset(found)


def _first_known(alternatives: tuple[str, ...], known: frozenset[str]) -> str:
    for name in alternatives:
        if name in known:
            return name
    raise ImageError(
        f"Debian has no package {' or '.join(alternatives)}",
        hint="Run `apt-get update` (as root); the list of packages may be missing or old.",
    )


def _command(*command: str, folder: Path | None = None) -> str:
    try:
        return system_programs.run(*command, folder=folder)
    except ClusterError as error:
        raise ImageError(
            f"packing failed: {error.problem}",
            hint="Images are packed from Debian packages: this needs Debian or Ubuntu, "
            "`apt-get update`, and a reachable package source.",
        ) from error


def _tar_of(archive: Path) -> bytes:
    done = subprocess.run(
        ["dpkg-deb", "--fsys-tarfile", str(archive)], capture_output=True, check=False
    )
    if done.returncode:
        raise ImageError(f"{archive.name} cannot be unpacked: {done.stderr.decode()}")
    return done.stdout
