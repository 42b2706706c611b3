"""Errors of the local cluster; each has a hint, and the log if there is one.

ClusterError
├── RootNeeded        a full cluster makes namespaces, links and cgroups
├── PackagesMissing   programs of the Linux distribution are not installed
├── BinariesMissing   KUBEBUILDER_ASSETS lacks programs, or Go to build them is missing
├── BuildFailed       `go build` of the pinned Kubernetes failed
├── PortTaken         another program listens where the API server should
├── NoFreePort        every port that a part could listen on is taken
├── NoFreeSubnet      every subnet that a cluster could use is routed elsewhere already
├── NotRunning        the command needs a running cluster, part or node
├── PartDied          etcd, the API server, the kubelet, ... ended by itself
├── NotReady          everything runs, but did not become ready in time
├── CgroupsUnusable   the control groups of this machine cannot hold Pods
└── ImageError        an image specification is wrong, or an archive could not be made or loaded
"""

from __future__ import annotations


class ClusterError(Exception):
    """Base of all errors of the local cluster; `hint` is what the user can do."""

    def __init__(self, problem: str, *, hint: str = "") -> None:
        """Join problem and hint to one text for users."""
        super().__init__(f"{problem}\n{hint}" if hint else problem)
        self.problem = problem
        self.hint = hint


class RootNeeded(ClusterError):
    """A full cluster was requested by a user other than root."""


class PackagesMissing(ClusterError):
    """Programs of the distribution are missing; the hint holds the apt-get command."""


class BinariesMissing(ClusterError):
    """Kubernetes programs are neither given nor can they be built."""


class BuildFailed(ClusterError):
    """`go build` failed; the problem names the log file."""


class PortTaken(ClusterError):
    """Another program listens on the requested port."""


class NoFreePort(ClusterError):
    """Every port that a part of the cluster could listen on is taken."""


class NoFreeSubnet(ClusterError):
    """Every subnet of the local clusters overlaps with a route of this machine."""


class NotRunning(ClusterError):
    """The cluster, the part or the node that a command needs does not run."""


class PartDied(ClusterError):
    """A part of the cluster ended by itself; the problem holds its last log lines."""


class NotReady(ClusterError):
    """The cluster did not become ready before the deadline."""


class CgroupsUnusable(ClusterError):
    """The control groups of this machine cannot be used for Pods."""


class ImageError(ClusterError):
    """An image specification is wrong, or an archive could not be made or loaded."""
