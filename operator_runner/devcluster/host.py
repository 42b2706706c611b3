"""The requirements of a node on this machine, and the control groups of its Pods.

One group at the top of each hierarchy, named after the cluster, takes all Pods of a node: the
kubelet's `cgroupRoot`. On cgroup v1 each controller is a hierarchy; on v2 there is one, whose
groups must be given their controllers from the top down.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from pathlib import Path

from operator_runner.devcluster import process
from operator_runner.devcluster.errors import (
    CgroupsUnusable,
    ClusterError,
    PackagesMissing,
    RootNeeded,
)
from operator_runner.devcluster.locations import name_on_node
from operator_runner.devcluster.node import CNI_PROGRAMS

_ROOT = Path("/sys/fs/cgroup")
_NEEDED = ("cpu", "cpuset", "memory", "pids")
_WANTED = (*_NEEDED, "io", "hugetlb")
_SECONDS = 15


def cgroup_name(token: str, number: int = 1) -> str:
    """Return the name of the group of a node of the cluster with this token.

    A kubelet removes the groups of Pods that it does not know, so each has a group of its own.
    """
    return name_on_node(f"operator-runner-{token}", number)


def is_v2(root: Path = _ROOT) -> bool:
    """Return whether this machine has the unified hierarchy only."""
    return (root / "cgroup.controllers").exists()


def create_cgroup(token: str, number: int = 1, root: Path = _ROOT) -> None:
    """Make the group of a node; raise CgroupsUnusable if Pods could not be limited in it."""
    group = cgroup_name(token, number)
    try:
        if is_v2(root):
            _create_v2(root, group)
        else:
            _create_v1(root, group)
    except OSError as error:
        raise CgroupsUnusable(
            f"no control group for Pods can be made: {error}",
            hint="In a container, run it privileged with a writable cgroup file system of its "
            "own; or use --control-plane-only.",
        ) from error


def remove_cgroups(token: str, root: Path = _ROOT) -> None:
    """Remove the cluster's groups from every hierarchy."""
    for top in (root, *_hierarchies(root)):
        for group in (top / cgroup_name(token), *top.glob(f"{cgroup_name(token)}-*")):
            if group.is_dir():
                _remove_tree(group)


def _create_v2(root: Path, group: str) -> None:
    present = (root / "cgroup.controllers").read_text().split()
    _require(present)
    (root / group).mkdir(exist_ok=True)
    for name in [name for name in _WANTED if name in present]:
        for folder in (root, root / group):
            (folder / "cgroup.subtree_control").write_text(f"+{name}")


def _create_v1(root: Path, group: str) -> None:
    tops = _hierarchies(root)
    _require([controller for top in tops for controller in top.name.split(",")])
    for top in tops:
        (top / group).mkdir(exist_ok=True)
        # A new cpuset group has no CPUs, and accepts no process until they are set.
        for name in ("cpuset.cpus", "cpuset.mems"):
            if (top / name).exists():
                (top / group / name).write_text((top / name).read_text())


def _require(present: list[str]) -> None:
    missing = [name for name in _NEEDED if name not in present]
    if missing:
        raise CgroupsUnusable(
            f"the kernel offers no cgroup controllers {', '.join(missing)}",
            hint="Enable them (on the kernel's command line), or use --control-plane-only.",
        )


def _hierarchies(root: Path) -> list[Path]:
    """Return the v1 hierarchies, each once: Debian links `cpu` to `cpu,cpuacct`.

    The unified one of a hybrid machine is among them; container runtimes use it there too.
    """
    if is_v2(root):
        return []
    folders = [entry for entry in root.iterdir() if entry.is_dir() and not entry.is_symlink()]
    return sorted(folder for folder in folders if (folder / "cgroup.procs").exists())


def _remove_tree(group: Path) -> None:
    # Deepest first; a group of processes that have just been killed is busy for a moment.
    deadline = time.monotonic() + _SECONDS
    for folder, _, _ in os.walk(group, topdown=False):
        while Path(folder).is_dir():
            with contextlib.suppress(FileNotFoundError):
                try:
                    Path(folder).rmdir()
                except OSError as error:
                    if error.errno != errno.EBUSY or time.monotonic() > deadline:
                        raise CgroupsUnusable(
                            f"the control group {folder} cannot be removed: {error.strerror}",
                            hint=f"See which processes it holds: {folder}/cgroup.procs",
                        ) from error
                    time.sleep(0.05)


# Each program the node needs, and its Debian package.
_PACKAGE_OF = {
    "containerd": "containerd",
    "ctr": "containerd",
    "containerd-shim-runc-v2": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "iptables-restore": "iptables",
    "ip": "iproute2",
    "mount": "mount",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    str(CNI_PROGRAMS / "ptp"): "containernetworking-plugins",
    str(CNI_PROGRAMS / "host-local"): "containernetworking-plugins",
    str(CNI_PROGRAMS / "portmap"): "containernetworking-plugins",
}
# The node mounts its own folders over these, so the cluster's files must be elsewhere.
_HIDDEN = tuple(
    Path(place)
    for place in (
        "/run",
        "/proc",
        "/var/log",
        "/var/lib/cni",
        "/var/lib/kubelet",
        "/var/lib/containerd",
    )
)


def require_root() -> None:
    """Raise RootNeeded unless this process may make namespaces, links and cgroups."""
    if os.geteuid() != 0:
        raise RootNeeded(
            "only root can start a cluster with a node",
            hint="Use sudo; or --control-plane-only, which runs no Pods.",
        )


def require_visible(*folders: Path) -> None:
    """Raise ClusterError if the node hides one of `folders` by a mount of its own."""
    for folder in folders:
        for hidden in _HIDDEN:
            if folder.resolve().is_relative_to(hidden):
                raise ClusterError(
                    f"the node cannot access {folder}, because it mounts its own {hidden}",
                    hint="Point XDG_STATE_HOME, XDG_CACHE_HOME or KUBEBUILDER_ASSETS elsewhere.",
                )


def missing_packages() -> list[str]:
    """Return the Debian packages that have to be installed, sorted."""
    return sorted(
        {package for name, package in _PACKAGE_OF.items() if not process.is_installed(name)}
    )


def require_packages(*, install: bool) -> list[str]:
    """Return the packages that were installed now; raise PackagesMissing if not to `install`."""
    missing = missing_packages()
    if not missing:
        return []
    command = f"apt-get install --yes --no-install-recommends {' '.join(missing)}"
    if not install or not process.is_installed("apt-get"):
        raise PackagesMissing(
            f"these packages are needed and not installed: {', '.join(missing)}",
            hint=f"Run `apt-get update && {command}`, or `cluster up --install-packages`.",
        )
    process.run_program("apt-get", "update", "--quiet")
    process.run_program("env", "DEBIAN_FRONTEND=noninteractive", *command.split())
    if still := missing_packages():
        raise PackagesMissing(
            f"{', '.join(missing)} were installed, but programs of {', '.join(still)} are missing",
            hint=f"See `dpkg --listfiles {still[0]}`.",
        )
    return missing
