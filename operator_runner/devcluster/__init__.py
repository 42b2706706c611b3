"""Run a local Kubernetes cluster, for the demo, for tests and for development.

It consists of etcd, API server, controller manager, scheduler, CoreDNS, a provisioner of volumes,
and one to four nodes with kubelet, kube-proxy, containerd and runc. Of the other packages only
`tools` and `testing` import it, and `cli` for its commands.
"""

from __future__ import annotations

from operator_runner.devcluster.cluster import Cluster
from operator_runner.devcluster.errors import ClusterError
from operator_runner.devcluster.image_packing import pack
from operator_runner.devcluster.supervision import PartStatus

__all__ = ["Cluster", "ClusterError", "PartStatus", "pack"]
