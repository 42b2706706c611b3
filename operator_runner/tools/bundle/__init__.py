"""Make bundles and catalogs for the Operator Lifecycle Manager.

Stages: `tools.kustomize` renders config/manifests; `manifests` looks up objects in the result
and with `owned_crds` derives parts of the ClusterServiceVersion, which
`cluster_service_version` assembles; `bundle` writes all files of a bundle and runs OLM's own
validators; `catalog` publishes several bundles.
"""

from __future__ import annotations
