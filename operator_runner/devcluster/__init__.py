"""A real Kubernetes cluster on the machine at hand, for the demo, for tests and for trying out.

Everything in it is the real thing: etcd, API server, controller manager, scheduler, and one node
with kubelet, kube-proxy, containerd and runc. It knows nothing of operators; the rest of the
package does not import it, except for its commands.
"""

from __future__ import annotations

from operator_runner.devcluster.cluster import Cluster
from operator_runner.devcluster.errors import ClusterError
from operator_runner.devcluster.image_packing import pack
from operator_runner.devcluster.supervision import PartStatus

__all__ = ["Cluster", "ClusterError", "PartStatus", "pack"]
