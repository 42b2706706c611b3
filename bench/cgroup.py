"""Limit CPU and memory of a process and its descendants with a control group."""

from __future__ import annotations

import contextlib
import secrets
import shlex
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.environment import wait_until
from bench.errors import BenchError

_ROOT = Path("/sys/fs/cgroup")
_PERIOD = 100_000
"""Microseconds in which the processes may use their share of CPU time."""
_SAMPLE_SECONDS = 0.25
_END_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Memory:
    """Peaks of the memory of a control group, in bytes."""

    working_set: int
    """What `kubectl top` shows: without pages of files that were not used recently. Sampled."""
    anonymous: int
    """Without pages of files. Sampled."""
    total: int
    """With all pages of files, as the kernel records it."""


class ControlGroup:
    """A control group of version 1 or 2."""

    def __init__(self, cores: int, memory: int) -> None:
        """Create it with these limits. Raises BenchError."""
        name = f"operator-runner-bench-{secrets.token_hex(4)}"
        self._unified = (_ROOT / "cgroup.controllers").exists()
        if self._unified:
            self._memory = _ROOT / name
            self._folders = [self._memory]
            limits = {"cpu.max": f"{cores * _PERIOD} {_PERIOD}", "memory.max": str(memory)}
            files = {self._memory / file: value for file, value in limits.items()}
            files = {_ROOT / "cgroup.subtree_control": "+cpu +memory"} | files
        else:
            self._memory, cpu = _ROOT / "memory" / name, _ROOT / "cpu" / name
            self._folders = [self._memory, cpu]
            files = {
                cpu / "cpu.cfs_period_us": str(_PERIOD),
                cpu / "cpu.cfs_quota_us": str(cores * _PERIOD),
                self._memory / "memory.limit_in_bytes": str(memory),
            }
        try:
            for folder in self._folders:
                folder.mkdir()
            for path, value in files.items():
                path.write_text(value, encoding="ascii")
        except OSError as error:
            self.remove()
            raise BenchError(
                f"cannot limit CPU and memory: {error}; run as root where {_ROOT} is writable, with"
                " the controllers cpu and memory"
            ) from None

    def launcher(self, program: Path, folder: Path) -> Path:
        """Write a script that starts a program in the control group; return its path."""
        path = folder / "limited"
        enter = [f"echo $$ > {each / 'cgroup.procs'}" for each in self._folders]
        lines = ["#!/bin/sh -e", *enter, f'exec {shlex.quote(str(program))} "$@"', ""]
        path.write_text("\n".join(lines))
        path.chmod(0o700)
        return path

    @contextmanager
    def sampled(self) -> Iterator[list[Memory]]:
        """Sample the memory until the block ends; the list has its peaks then."""
        ended, samples = threading.Event(), [(0, 0)]
        result: list[Memory] = []

        def sample() -> None:
            while not ended.wait(_SAMPLE_SECONDS):
                samples.append(self._read())

        thread = threading.Thread(target=sample, daemon=True)
        thread.start()
        try:
            yield result
        finally:
            ended.set()
            thread.join()
        peak = "memory.peak" if self._unified else "memory.max_usage_in_bytes"
        working_sets, anonymous = zip(*samples, strict=True)
        result.append(Memory(max(working_sets), max(anonymous), self._number(peak)))

    def _read(self) -> tuple[int, int]:
        """Return the working set and the anonymous memory in bytes."""
        lines = (self._memory / "memory.stat").read_text(encoding="ascii").splitlines()
        found: Mapping[str, str] = dict(line.split() for line in lines)
        if self._unified:
            usage, inactive, anonymous = "memory.current", "inactive_file", "anon"
        else:
            usage, inactive = "memory.usage_in_bytes", "total_inactive_file"
            anonymous = "total_rss"
        return self._number(usage) - int(found[inactive]), int(found[anonymous])

    def _number(self, file: str) -> int:
        return int((self._memory / file).read_text(encoding="ascii"))

    def remove(self) -> None:
        """Remove the control group when its processes have ended."""

        def removed() -> bool:
            for folder in self._folders:
                with contextlib.suppress(OSError):  # busy: a process has not ended yet
                    folder.rmdir()
            return not any(folder.exists() for folder in self._folders)

        wait_until(removed, "the processes of the control group have ended", _END_SECONDS)
