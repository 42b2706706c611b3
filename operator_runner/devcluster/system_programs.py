"""Run programs of the Linux distribution to their end."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from operator_runner.devcluster.errors import ClusterError


def search_path() -> str:
    """Return PATH with the folders that Debian leaves out for plain users: ip, runc and more."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


def found(name: str) -> bool:
    """Return whether the program `name` is installed."""
    return shutil.which(name, path=search_path()) is not None


def run(*command: str, stdin: Path | None = None, folder: Path | None = None) -> str:
    """Run `command` and return what it printed; raise ClusterError if it fails.

    The file `stdin`, if given, is its input; it works in `folder`.
    """
    with (stdin or Path(os.devnull)).open("rb") as source:
        try:
            done = subprocess.run(
                command,
                stdin=source,
                cwd=folder,
                env={**os.environ, "PATH": search_path(), "LC_ALL": "C.UTF-8"},
                capture_output=True,
                check=False,
            )
        except FileNotFoundError as error:
            raise ClusterError(f"{command[0]} is not installed") from error
    if done.returncode:
        reason = (done.stderr or done.stdout).decode(errors="replace").strip()
        raise ClusterError(f"`{' '.join(command)}` failed: {reason}")
    return done.stdout.decode(errors="replace")
