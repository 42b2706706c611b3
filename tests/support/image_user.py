"""Processes in the surroundings of the image: its user, directories and restrictions.

`as_image_user` starts a program with uid 1001 and gid 0, without capabilities, with no_new_privs,
in a mount namespace with its own /tmp, home directory /opt/ansible and work dir
/var/lib/operator-runner, which belongs to root as in the image.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from operator_runner.ansible.libc import call

UID = 1001
HOME = Path("/opt/ansible")
WORK_DIR = Path("/var/lib/operator-runner")
_CHECKOUT = Path(__file__).parents[2]
_CLONE_NEWNS = 0x00020000
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 0x40000
_PR_SET_NO_NEW_PRIVS, _PR_CAPBSET_DROP = 38, 24
_EVERYBODY_SEARCHES = 0o001


@contextmanager
def as_image_user(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Start Python with these arguments, with pipes; end it."""
    assert os.geteuid() == 0, "other users can only be tried as root"
    environment = {
        "PATH": f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": str(HOME),
        "LANG": "C.UTF-8",
        "LOGNAME": "ansible",
        "PYTHONPATH": str(_CHECKOUT),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", __name__, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        cwd="/",
    )
    with process:
        try:
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(60)
            finally:
                process.kill()


def _enter_image() -> None:
    """Change mounts and user of this process."""
    call("unshare", _CLONE_NEWNS)
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE)
    needed = (Path(sys.executable).resolve(), Path(sys.prefix), _CHECKOUT)
    for path in needed:
        _open_parents(path)
    hidden = {path: os.open(path, os.O_PATH) for path in needed if path.is_relative_to("/tmp")}
    for path, mode, owner in (
        (Path("/tmp"), 0o1777, 0),
        (HOME, 0o775, UID),
        (WORK_DIR, 0o770, 0),
    ):
        existing = next(each for each in (path, *path.parents) if each.exists())
        if existing != path:
            _replace_with_tmpfs(existing)
            path.mkdir(parents=True)
        _mount("tmpfs", str(path), "tmpfs", 0, f"mode={mode:o},uid={owner},gid=0")
    for path, descriptor in hidden.items():
        path.mkdir(parents=True, exist_ok=True)
        _mount(f"/proc/self/fd/{descriptor}", str(path), None, _MS_BIND | _MS_REC)
        os.close(descriptor)
    os.setgroups([])
    for capability in range(64):
        try:
            call("prctl", _PR_CAPBSET_DROP, capability, 0, 0, 0)
        except OSError:
            break  # the kernel has no more
    os.setresgid(0, 0, 0)
    os.setresuid(UID, UID, UID)
    call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def _open_parents(path: Path) -> None:
    """Show everybody the way to a path below directories such as /root, and only that."""
    for parent in reversed(path.parents):
        if not parent.stat().st_mode & _EVERYBODY_SEARCHES:
            _replace_with_tmpfs(parent)


def _replace_with_tmpfs(directory: Path) -> None:
    """Put a file system with the same entries in place of a directory, one that all can search."""
    entries = list(os.scandir(directory))
    opened = {entry.name: os.open(entry.path, os.O_PATH | os.O_NOFOLLOW) for entry in entries}
    _mount("tmpfs", str(directory), "tmpfs", 0, "mode=0755")
    for entry in entries:
        target = directory / entry.name
        source = f"/proc/self/fd/{opened[entry.name]}"
        if entry.is_symlink():
            target.symlink_to(os.readlink("", dir_fd=opened[entry.name]))
            continue
        target.mkdir() if entry.is_dir() else target.touch()
        _mount(source, str(target), None, _MS_BIND | _MS_REC)
    for descriptor in opened.values():
        os.close(descriptor)


def _mount(
    source: str | None, target: str, kind: str | None, flags: int, options: str | None = None
) -> None:
    texts = (text and os.fsencode(text) for text in (source, target, kind, options))
    source_, target_, kind_, options_ = texts
    call("mount", source_, target_, kind_, ctypes.c_ulong(flags), options_)


if __name__ == "__main__":
    _enter_image()
    os.execv(sys.executable, [sys.executable, "-P", *sys.argv[1:]])
