"""The first process of a node. Runs by itself, with the standard library only.

Its arguments are the node's folder and name. It makes the mounts that hide this machine's own state
from the node's programs, writes `init.json` there when the node can be used, and then only collects
ended processes. When it ends, the kernel ends everything else in the node.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

# Folders that the node's programs write to, and the folder of the node that is mounted there.
_OWN = {
    "/var/lib/cni": "cni-state",
    "/var/lib/kubelet": "kubelet",
    "/var/lib/containerd": "containerd",
}
# The kubelet sets these for the whole machine; in the node it sets copies.
_SYSCTLS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)


def main(folder: Path, host_name: str) -> None:
    """Prepare the node, then run until it is killed."""
    prepare(folder, host_name)
    snapshotter = "overlayfs" if overlays_work(folder) else "native"
    draft = folder / "init.json.new"
    draft.write_text(json.dumps({"snapshotter": snapshotter}))
    draft.rename(folder / "init.json")
    reap_forever()


def prepare(folder: Path, host_name: str) -> None:
    """Make the node's mounts, set its host name, and switch on forwarding between its links."""
    mount("--make-rprivate", "/")
    mount("-t", "proc", "proc", "/proc")
    for place in ("/run", "/var/log"):
        mount("-t", "tmpfs", "-o", "mode=0755", "tmpfs", place)
    for place, name in _OWN.items():
        own = folder / name
        own.mkdir(mode=0o755)
        # Outside the node's mount namespace the mount point is empty.
        Path(place).mkdir(parents=True, exist_ok=True)
        mount("--bind", str(own), place)
    for sysctl in _SYSCTLS:
        copy_over(Path("/proc/sys", sysctl))
    # Volumes of Pods are seen by containers that were started before.
    mount("--make-rshared", "/")
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    Path("/proc/sys/kernel/hostname").write_text(host_name)


def copy_over(sysctl: Path) -> None:
    """Let writes to `sysctl` go to a copy."""
    copy = Path("/run", "sysctl-" + str(sysctl).replace("/", "."))
    copy.write_text(sysctl.read_text())
    mount("--bind", str(copy), str(sysctl))


def overlays_work(folder: Path) -> bool:
    """Return whether the file system of `folder` can carry overlays; another overlay cannot."""
    layers = {name: folder / "overlay-trial" / name for name in ("low", "up", "work", "all")}
    for layer in layers.values():
        layer.mkdir(parents=True)
    options = f"lowerdir={layers['low']},upperdir={layers['up']},workdir={layers['work']}"
    command = ["mount", "-t", "overlay", "-o", options, "overlay", str(layers["all"])]
    works = subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode == 0
    if works:
        subprocess.run(["umount", str(layers["all"])], check=True)
    return works


def mount(*arguments: str) -> None:
    """Run mount, and fail with it."""
    subprocess.run(["mount", *arguments], check=True)


def reap_forever() -> None:
    """Collect ended processes whose parents are gone, as every first process has to.

    The kernel spares a first process all signals that it has no handler for, except SIGKILL from
    outside: so a node ends.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    while True:
        signal.sigwait({signal.SIGCHLD})
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
