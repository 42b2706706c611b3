"""A mount namespace in which a directory shows only what it is to show.

Source: mount_namespaces(7), mount(2).
"""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from operator_runner.ansible.libc import call

_CLONE_NEWNS = 0x00020000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_REMOUNT = 0x1, 0x2, 0x4, 0x20
_MS_BIND, _MS_REC, _MS_SLAVE = 0x1000, 0x4000, 0x80000


def hide(folder: str, but: Sequence[str] = (), read_only: Sequence[str] = ()) -> None:
    """Let this process, and all that it starts from now on, find nothing in `folder` `but` these.

    They, and others that can only be read, are existing directories below it. Raises OSError,
    EPERM without CAP_SYS_ADMIN.
    """
    call("unshare", _CLONE_NEWNS)
    # What is mounted elsewhere shows up here, but not the other way round.
    _mount(None, "/", None, _MS_REC | _MS_SLAVE)
    flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
    shown = [(path, os.open(path, flags)) for path in (*but, *read_only)]
    try:
        _mount("tmpfs", folder, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=0700")
        for path, descriptor in shown:
            Path(path).mkdir(parents=True)
            _mount(f"/proc/self/fd/{descriptor}", path, None, _MS_BIND)
        for path in read_only:
            _mount(None, path, None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY)
        # What is written beside would be lost, so that must not seem to work.
        _mount(None, folder, None, _MS_REMOUNT | _MS_RDONLY | _MS_NOSUID | _MS_NODEV)
    finally:
        for _, descriptor in shown:
            os.close(descriptor)
    _leave_what_is_hidden()


def cover(paths: Iterable[str]) -> None:
    """Let files be empty, and directories have nothing in them, as `hide` lets it.

    To be called after `hide`. A file of a volume whose files the kubelet replaces (Secrets,
    tokens) is missing, and the others are copies: a mount would stay on the old ones.
    Raises OSError.
    """
    volumes: dict[Path, set[str]] = {}
    for path in map(Path, paths):
        if path.is_dir():
            _mount("tmpfs", str(path), "tmpfs", _MS_RDONLY | _MS_NOSUID | _MS_NODEV, "mode=0755")
        elif (path.parent / "..data").is_symlink():
            volumes.setdefault(path.parent.resolve(), set()).add(path.name)
        elif path.exists():
            _mount("/dev/null", str(path), None, _MS_BIND)
    for folder, hidden in volumes.items():
        _replace_by_copies(folder, hidden)


def _replace_by_copies(folder: Path, but: Collection[str]) -> None:
    opened = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _mount("tmpfs", str(folder), "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=0755")
        for entry in Path(f"/proc/self/fd/{opened}").iterdir():
            if entry.name in but or entry.name.startswith(".."):
                continue
            if entry.is_dir():
                shutil.copytree(entry, folder / entry.name)
            else:
                shutil.copy(entry, folder / entry.name)
        _mount(None, str(folder), None, _MS_REMOUNT | _MS_RDONLY | _MS_NOSUID | _MS_NODEV)
    finally:
        os.close(opened)


def join(process: int) -> None:
    """See what another process sees. Raises OSError."""
    namespace = os.open(f"/proc/{process}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    try:
        call("setns", namespace, _CLONE_NEWNS)
    finally:
        os.close(namespace)


def _leave_what_is_hidden() -> None:
    # A working directory stays what it was, and what lies beside it could be read from there.
    try:
        os.chdir(Path.cwd())
    except OSError:
        os.chdir("/")


def _mount(
    source: str | None, target: str, kind: str | None, flags: int, options: str | None = None
) -> None:
    texts = (text and os.fsencode(text) for text in (source, target, kind, options))
    source_, target_, kind_, options_ = texts
    call("mount", source_, target_, kind_, ctypes.c_ulong(flags), options_)
