"""Hide files from this process in a mount namespace of its own.

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


def hide(
    directory: str,
    keep: Sequence[str] = (),
    read_only: Sequence[str] = (),
    protected: Sequence[str] = (),
) -> None:
    """Hide `directory`, except `keep` and `read_only`, from this process and its children.

    Both list existing directories below it; those in `read_only` cannot be written, nor those in
    `protected`, which may be anywhere. Raises OSError, EPERM without CAP_SYS_ADMIN.
    """
    call("unshare", _CLONE_NEWNS)
    # Mounts of the host propagate into the namespace, but not out of it.
    _mount(None, "/", None, _MS_REC | _MS_SLAVE)
    flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
    shown = [(path, os.open(path, flags)) for path in (*keep, *read_only)]
    try:
        for path in filter(os.path.isdir, protected):
            _mount(path, path, None, _MS_BIND | _MS_REC)
            _mount(None, path, None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY)
        _mount("tmpfs", directory, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=0700")
        for path, descriptor in shown:
            Path(path).mkdir(parents=True)
            _mount(f"/proc/self/fd/{descriptor}", path, None, _MS_BIND)
        for path in read_only:
            _mount(None, path, None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY)
        # Read-only, because anything written into the tmpfs would be lost.
        _mount(None, directory, None, _MS_REMOUNT | _MS_RDONLY | _MS_NOSUID | _MS_NODEV)
    finally:
        for _, descriptor in shown:
            os.close(descriptor)
    _reenter_working_directory()


def mask(paths: Iterable[str]) -> None:
    """Mask existing files and directories, so that both appear empty. Call it after `hide`.

    In a volume that the kubelet updates atomically (Secrets, tokens) a masked file is missing and
    the others are copies, because a mount would keep the old version. Raises OSError.
    """
    volumes: dict[Path, set[str]] = {}
    for path in map(Path, paths):
        if path.is_dir():
            _mount("tmpfs", str(path), "tmpfs", _MS_RDONLY | _MS_NOSUID | _MS_NODEV, "mode=0755")
        elif (path.parent / "..data").is_symlink():
            volumes.setdefault(path.parent.resolve(), set()).add(path.name)
        elif path.exists():
            _mount("/dev/null", str(path), None, _MS_BIND)
    for directory, names in volumes.items():
        _replace_with_copies(directory, names)


def _replace_with_copies(directory: Path, masked: Collection[str]) -> None:
    opened = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _mount("tmpfs", str(directory), "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=0755")
        for entry in Path(f"/proc/self/fd/{opened}").iterdir():
            if entry.name in masked or entry.name.startswith(".."):
                continue
            if entry.is_dir():
                shutil.copytree(entry, directory / entry.name)
            else:
                shutil.copy(entry, directory / entry.name)
        _mount(None, str(directory), None, _MS_REMOUNT | _MS_RDONLY | _MS_NOSUID | _MS_NODEV)
    finally:
        os.close(opened)


def join(process: int) -> None:
    """Join the mount namespace of another process. Raises OSError."""
    namespace = os.open(f"/proc/{process}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    try:
        call("setns", namespace, _CLONE_NEWNS)
    finally:
        os.close(namespace)


def _reenter_working_directory() -> None:
    # The working directory still refers to the hidden directory, whose files it would expose.
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
