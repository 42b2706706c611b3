"""Programs of Debian that tests use."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from operator_runner.devcluster import locations
from operator_runner.devcluster.locations import cache_folder


@contextmanager
def one_apt() -> Iterator[None]:
    """Wait until no other test uses apt-get: it fails at once where another one has its lock."""
    folder = cache_folder(os.environ)
    folder.mkdir(parents=True, exist_ok=True)
    with locations.locked(folder / "apt.lock"):
        yield


def program(name: str) -> str:
    """Return the path of a program; root installs the package of this name if it is missing."""
    if shutil.which(name) is None:
        with one_apt():
            _install(name)
    found = shutil.which(name)
    assert found is not None
    return found


def _install(name: str) -> None:
    if shutil.which(name) is not None:  # another test was faster
        return
    flags = ("--yes", "--quiet", "--no-install-recommends")
    # Automatic updates may hold the lock.
    install = ["apt-get", "--option=DPkg::Lock::Timeout=600", "install", *flags, name]
    assert os.geteuid() == 0, f"{name} is not installed: run {' '.join(install)} as root"
    subprocess.run(["apt-get", "update", "--quiet"], check=True)
    subprocess.run(install, check=True, env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"})
