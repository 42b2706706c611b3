"""Make bundles and catalogs for the Operator Lifecycle Manager.

Stages: `tools.kustomize` renders config/manifests; `manifests` looks up objects in the result;
`permissions`, `owned_crds` and `descriptors` derive parts of the ClusterServiceVersion, which
`cluster_service_version` assembles; `bundle` returns all files of a bundle; `catalog` and
`operatorhub` publish several bundles; `validation` runs OLM's own validators. Only
`stored_bundles`, `writer`, `operatorhub` and `validation` access the disk.
"""

from __future__ import annotations
