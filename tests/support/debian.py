"""Programs of Debian that tests use."""

from __future__ import annotations

import os
import shutil
import subprocess


def program(name: str) -> str:
    """Return the path of a program; root installs the package of this name if it is missing."""
    if (found := shutil.which(name)) is not None:
        return found
    install = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", name]
    assert os.geteuid() == 0, f"{name} is not installed: run {' '.join(install)} as root"
    subprocess.run(["apt-get", "update", "--quiet"], check=True)
    subprocess.run(install, check=True, env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"})
    found = shutil.which(name)
    assert found is not None
    return found
