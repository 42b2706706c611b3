"""The kubectl of the demo: `bin/kubectl` of the checkout, as the user has it too."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from demo import record
from demo.errors import DemoError, TimedOut

T = TypeVar("T")
_POLL_SECONDS = 0.3


def write_wrapper(program: Path, kubeconfig: str | None) -> None:
    """Write `bin/kubectl`, which uses the demo's cluster from any shell."""
    preset = f"KUBECONFIG={shlex.quote(kubeconfig)}\nexport KUBECONFIG\n" if kubeconfig else ""
    script = f'#!/bin/sh\n{preset}exec {shlex.quote(str(program))} "$@"\n'
    record.KUBECTL.parent.mkdir(exist_ok=True)
    record.KUBECTL.write_text(script)
    record.KUBECTL.chmod(0o755)


def of_user(environment: Mapping[str, str]) -> tuple[Path, str | None]:
    """Return the user's own kubectl and KUBECONFIG, with absolute paths."""
    found = shutil.which("kubectl", path=environment.get("PATH"))
    if found is None:
        raise DemoError(
            "kubectl is not on PATH",
            hint="Install the kubectl of your cluster; or run `make demo`, which includes one.",
        )
    given = environment.get("KUBECONFIG")
    files = (str(Path(file).absolute()) for file in given.split(os.pathsep)) if given else ()
    return Path(found), os.pathsep.join(files) or None


def run(*arguments: str) -> str:
    """Run kubectl and return its output. Raises DemoError with kubectl's message."""
    command = [str(record.KUBECTL), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        shown = shlex.join(["bin/kubectl", *arguments])
        raise DemoError(f"{shown} failed:\n{(done.stderr or done.stdout).strip()}")
    return done.stdout


def get(*arguments: str) -> dict[str, Any] | None:
    """Return one object; None if it does not exist."""
    text = run("get", *arguments, "--ignore-not-found", "--output=json")
    found: dict[str, Any] | None = json.loads(text) if text.strip() else None
    return found


def wait_for(what: str, probe: Callable[[], T | None], seconds: float) -> T:
    """Call `probe` until its result is true; raise TimedOut that names `what` after `seconds`."""
    deadline = time.monotonic() + seconds
    while (found := probe()) is None:
        if time.monotonic() > deadline:
            raise TimedOut(f"{what}: not within {seconds:.0f} s", log=record.LOG)
        time.sleep(_POLL_SECONDS)
    return found
