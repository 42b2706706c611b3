"""Build images from Dockerfiles without a registry: by buildah, on a base of Debian packages."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from operator_runner.devcluster.locations import cache_folder
from tests.support.debian import one_apt

BASE = "docker.io/library/debian:trixie-slim"
RUNNER_IMAGE = "localhost/operator-runner:e2e"
_SUITE = "trixie"
_PROGRAMS = {"buildah": "buildah", "debootstrap": "debootstrap"}
_OF_THIS_MACHINE = ("/etc/pip.conf", "/usr/local/share/ca-certificates", "/etc/ssl/certs")


@dataclass(frozen=True, slots=True)
class Builder:
    """Builds into a store of its own, below a folder."""

    folder: Path

    def provide_base(self) -> None:
        """Have an image under the name of Debian's official one, from packages of its archive."""
        archive = _debian()
        container = self("from", "scratch")
        self("add", container, str(archive), "/")
        self("commit", container, BASE)
        self("rm", container)

    def build(
        self, dockerfile: Path, name: str, *arguments: str, context: Path | None = None
    ) -> None:
        """Build a Dockerfile, from the files in its own folder or in `context`."""
        folder = str(context or dockerfile.parent)
        self("build", "--pull-never", f"--file={dockerfile}", f"--tag={name}", *arguments, folder)

    def build_operators(self, repository: Path, releases: Mapping[str, Path]) -> dict[str, str]:
        """Build the base image, and on it the nginx operator from each folder of `releases`.

        Return the image of each, by its version.
        """
        self.build(repository / "Dockerfile", RUNNER_IMAGE, f"--build-arg=DEBIAN_IMAGE={BASE}")
        names = {version: f"localhost/nginx-operator:{version}" for version in releases}
        for version, folder in releases.items():
            argument = f"--build-arg=BASE_IMAGE={RUNNER_IMAGE}"
            self.build(folder / "nginx.Dockerfile", names[version], argument)
        return names

    def build_example(self, project: Path) -> str:
        """Build an example operator on the base image; return the name of its image."""
        name = f"localhost/{project.name}-operator:e2e"
        self.build(project / "Dockerfile", name, f"--build-arg=BASE_IMAGE={RUNNER_IMAGE}")
        return name

    def save(self, name: str, archive: Path) -> Path:
        """Write an image to an archive that `Cluster.load` takes."""
        self("push", name, f"docker-archive:{archive}:{name}")
        return archive

    def __call__(self, *arguments: str) -> str:
        """Run buildah; return its output."""
        store = [f"--root={self.folder / 'store'}", f"--runroot={self.folder / 'run'}"]
        isolated = {**os.environ, "BUILDAH_ISOLATION": "chroot"}
        done = subprocess.run(
            ["buildah", *store, *arguments],
            env=isolated,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{arguments}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done.stdout.strip()


def _install_programs() -> None:
    missing = [package for name, package in _PROGRAMS.items() if not shutil.which(name)]
    if missing:
        install = [
            "apt-get",
            "--option=DPkg::Lock::Timeout=600",
            "install",
            "--yes",
            "--no-install-recommends",
            *missing,
        ]
        with one_apt():
            subprocess.run(["apt-get", "update", "--quiet"], check=True)
            subprocess.run(
                install, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, check=True
            )


def _debian() -> Path:
    """Return a root file system of Debian as an archive, from the cache if it is there.

    Packages are installed from the sources of this machine, with its certificate authorities.
    """
    cached = cache_folder(os.environ) / "images" / f"{_SUITE}.tar"
    cached.parent.mkdir(parents=True, exist_ok=True)
    # Tests that run at the same time make it once.
    with cached.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _install_programs()
        if not cached.exists():
            _make_debian(cached)
    return cached


def _make_debian(cached: Path) -> None:
    root = cached.with_suffix(".root")
    shutil.rmtree(root, ignore_errors=True)
    command = ["debootstrap", "--variant=minbase", "--include=ca-certificates", _SUITE, str(root)]
    try:
        subprocess.run([*command, _archive()], check=True)
        trusted = [place for place in _OF_THIS_MACHINE if Path(place).exists()]
        subprocess.run(["cp", "--archive", "--parents", *trusted, str(root)], check=True)
        packed = cached.with_suffix(".new")
        pack = ["tar", "--create", f"--file={packed}", f"--directory={root}", "."]
        subprocess.run(pack, check=True)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    packed.rename(cached)


def _archive() -> str:
    """Return where this machine gets Debian's packages from."""
    if not (found := _archives()):
        with one_apt():
            subprocess.run(["apt-get", "update", "--quiet"], check=True)
        found = _archives()
    return next(place for place in found if "security" not in place)


def _archives() -> list[str]:
    ask = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Origin: Debian"]
    return subprocess.run(ask, capture_output=True, text=True, check=True).stdout.splitlines()
