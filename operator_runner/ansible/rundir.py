"""The private data dirs of ansible-runner, one for each resource: made 0700, bounded, removed.

Layout as ansible-operator has it: `<work dir>/<group>/<version>/<kind>/<namespace>/<name>`
with env/, inventory/, project/ and artifacts/<run id>/ in it. A run finds its own of all this.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from operator_runner.ansible import nofollow_io
from operator_runner.ansible.extra_vars import serialize
from operator_runner.ansible.sandbox.isolation import Isolation, Sandbox
from operator_runner.ansible.sandbox.isolation_probe import Found, find_isolation
from operator_runner.ansible.scratch import OWN_NAMES, Scratch
from operator_runner.core.errors import ConfigError
from operator_runner.core.model import Json, ObjectRef, RunRequest
from operator_runner.core.settings import AnsibleSettings

_SHARED = "shared"
"""Of the work dir, what all runs may read."""


@dataclass(frozen=True, slots=True)
class RunDir:
    """The private data dir of one resource."""

    path: Path
    scratch: Scratch
    isolation: Isolation
    secrets: tuple[str, ...] = ()
    """Files and directories with the operator's credentials."""

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of the run under way, with its token."""
        return self.path / "env" / "kubeconfig"

    def sandbox(self, run_id: str) -> Sandbox:
        """Return what keeps a run from files and processes of the operator and of other runs."""
        base = self.scratch.base
        own = (str(self.path), str(self.scratch.of(run_id)))
        shared = base / _SHARED
        readable = (str(shared),) if shared.is_dir() else ()
        return Sandbox(self.isolation, str(base), own, readable, self.secrets)

    def artifacts(self, run_id: str) -> Path:
        """Where a run leaves its output and events."""
        return self.path / "artifacts" / run_id

    def prepare(self, request: RunRequest, ansible: AnsibleSettings) -> None:
        """Write everything that the run reads. Raises OSError."""
        self.scratch.open(request.run_id)
        for part in ("env", "inventory", "project", "artifacts"):
            nofollow_io.make_private(self.path / part)
        env = self.path / "env"
        nofollow_io.write(env / "extravars", serialize(request.extra_vars))
        nofollow_io.write(env / "cmdline", _unquote(ansible.args))
        nofollow_io.write(self.kubeconfig, request.kubeconfig)
        self._write_inventory(ansible.inventory, self.scratch.of(request.run_id))

    def write_playbook(self, plays: list[Json]) -> str:
        """Write a playbook of the run's own; return its name as ansible-runner takes it."""
        playbook = self.path / "project" / "main.json"
        nofollow_io.write(playbook, json.dumps(plays))
        return playbook.name

    def close(self, request: RunRequest, *, left_processes: bool) -> None:
        """After the run: drop its credentials, point `latest` at it, remove old artifacts.

        A run that left processes behind on purpose leaves them their temporary directory, as
        long as its artifacts are kept.
        """
        for part in ("env", "artifacts"):
            nofollow_io.make_private(self.path / part)
        self.kubeconfig.unlink(missing_ok=True)
        if not left_processes:
            self.scratch.close(request.run_id)
        artifacts = self.artifacts(request.run_id)
        _drop_environment(artifacts / "command")
        if artifacts.is_dir():
            latest = artifacts.parent / "latest"
            latest.unlink(missing_ok=True)
            latest.symlink_to(request.run_id)
        self._rotate(request.max_artifacts)

    def artifact(self, run_id: str, name: str) -> TextIO:
        """Open a file to keep something of a run in."""
        nofollow_io.make_private(self.artifacts(run_id))
        return nofollow_io.open_new(self.artifacts(run_id) / name)

    def output(self, run_id: str) -> str:
        """Return what the run printed, as far as it came."""
        try:
            return nofollow_io.read(self.artifacts(run_id) / "stdout")
        except FileNotFoundError:
            return ""

    def _rotate(self, keep: int) -> None:
        if keep <= 0:
            return
        runs = [entry for entry in (self.path / "artifacts").iterdir() if not entry.is_symlink()]
        runs.sort(key=lambda entry: entry.stat().st_mtime_ns, reverse=True)
        for old in runs[keep:]:
            self.scratch.close(old.name)
            shutil.rmtree(old)

    def _write_inventory(self, source: Path | None, scratch: Path) -> None:
        # Rules of the contract: a copy of ANSIBLE_INVENTORY, a directory as the inventory,
        # a file as inventory/hosts; without one localhost alone. What modules are given there
        # goes to the run's own directory instead of ~/.ansible/tmp, where all runs can read it.
        target = self.path / "inventory"
        shutil.rmtree(target)
        if source is not None and source.is_dir():
            shutil.copytree(source, target)
            return
        nofollow_io.make_private(target)
        if source is not None:
            shutil.copyfile(source, target / "hosts")
        else:
            host = f"localhost ansible_connection=local {_interpreter()}\n"
            nofollow_io.write(target / "hosts", host)
            if not {"ANSIBLE_REMOTE_TEMP", "ANSIBLE_REMOTE_TMP"} & {*os.environ}:
                nofollow_io.make_private(target / "host_vars")
                temporary = {"ansible_remote_tmp": str(scratch)}
                nofollow_io.write(target / "host_vars" / "localhost", json.dumps(temporary))


class RunDirs:
    """All private data dirs, below one directory that belongs to this process alone."""

    def __init__(
        self, base: Path, *, isolate: bool = True, credentials: Sequence[Path] = ()
    ) -> None:
        """Take `base` (made if missing); a base of another user raises ConfigError.

        Runs are kept apart, and from the operator and its `credentials` (files and directories),
        as far as that is possible here, unless `isolate` is False.
        """
        # Runs have working directories of their own, so nothing relative may reach them. And of
        # links there may be none but those that a run has made.
        base = base.resolve()
        nofollow_io.make_private(base)
        if not _is_trusted(base.stat()):
            raise ConfigError(
                f"--work-dir {base} belongs to another user; name a directory of your own"
            )
        self.base = base
        self._lock = _lock(base)
        self._scratch = Scratch(base)
        self._scratch.clear()
        self.shared = base / _SHARED
        found = find_isolation(base, credentials) if isolate else Found(Isolation(), None)
        self.isolation, self.fault = found.isolation, found.fault
        self._secrets = found.secrets

    def of(self, ref: ObjectRef) -> RunDir:
        """Return the dir of a resource, whether it exists or not."""
        gvk = ref.gvk
        path = self.base / gvk.group / gvk.version / gvk.kind / ref.namespace / ref.name
        return RunDir(path, self._scratch, self.isolation, self._secrets)

    def remove(self, ref: ObjectRef) -> None:
        """Remove the dir of a resource that is gone, and parents that became empty."""
        path = self.of(ref).path
        for run in path.glob("artifacts/*"):
            self._scratch.close(run.name)
        if path.exists():
            shutil.rmtree(path)
        self._remove_empty_parents(path)
        own = {*OWN_NAMES, _SHARED}
        if not any(entry.is_dir() for entry in self.base.iterdir() if entry.name not in own):
            self._scratch.forget()

    def _remove_empty_parents(self, path: Path) -> None:
        for parent in path.parents:
            if parent == self.base:
                break
            with contextlib.suppress(OSError):  # not empty, or never made
                parent.rmdir()


def _is_trusted(base: os.stat_result) -> bool:
    # A volume of a Pod belongs to root, whoever may write to it; so does /tmp, which is sticky.
    of_root = base.st_uid == 0 and not base.st_mode & stat.S_ISVTX
    return of_root or base.st_uid == os.geteuid()


def _lock(base: Path) -> int:
    # Two operators that run resources of the same names in one place would mix them up.
    descriptor = os.open(base / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise ConfigError(
            f"--work-dir {base} is in use by another operator; name another directory"
        ) from None
    return descriptor


def _drop_environment(command: Path) -> None:
    # ansible-runner writes the whole environment of the run there, secrets included.
    try:
        content: Json = json.loads(nofollow_io.read(command))
    except FileNotFoundError:
        return
    except ValueError:
        # A run that was killed while it wrote has left half of it.
        command.unlink()
        return
    content.pop("env", None)
    nofollow_io.write(command, json.dumps(content))


def _interpreter() -> str:
    environment = os.environ.get("VIRTUAL_ENV")
    python = f"{environment}/bin/python3" if environment else "{{ansible_playbook_python}}"
    return f"ansible_python_interpreter={python}"


def _unquote(args: str) -> str:
    """Take one pair of outer single quotes off, as ansible-operator does."""
    if len(args) >= 2 and args[0] == args[-1] == "'":  # noqa: PLR2004
        return args[1:-1]
    return args
