"""Check the requirements of a node on this machine."""

from __future__ import annotations

import os
from pathlib import Path

from operator_runner.devcluster import system_programs
from operator_runner.devcluster.errors import ClusterError, PackagesMissing, RootNeeded
from operator_runner.devcluster.node_config import CNI_PROGRAMS

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
        {package for name, package in _PACKAGE_OF.items() if not system_programs.found(name)}
    )


def require_packages(*, install: bool) -> list[str]:
    """Return the packages that were installed now; raise PackagesMissing if not to `install`."""
    missing = missing_packages()
    if not missing:
        return []
    command = f"apt-get install --yes --no-install-recommends {' '.join(missing)}"
    if not install or not system_programs.found("apt-get"):
        raise PackagesMissing(
            f"these packages are needed and not installed: {', '.join(missing)}",
            hint=f"Run `apt-get update && {command}`, or `cluster up --install-packages`.",
        )
    system_programs.run("apt-get", "update", "--quiet")
    system_programs.run("env", "DEBIAN_FRONTEND=noninteractive", *command.split())
    if still := missing_packages():
        raise PackagesMissing(
            f"{', '.join(missing)} were installed, but programs of {', '.join(still)} are missing",
            hint=f"See `dpkg --listfiles {still[0]}`.",
        )
    return missing
