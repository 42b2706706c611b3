"""What the Operator Lifecycle Manager installs an operator from: bundles and catalogs.

From the files of a project to texts, in stages: kustomize renders config/manifests (`rendering`),
`project` finds things in what came out, `permissions`, `owned` and `descriptors` make parts of the
ClusterServiceVersion, `service_version` puts them together, `bundle` makes all files of a bundle,
`catalog` and `hub` what is published of several bundles. `validation` asks OLM's own programs.
Only `rendering`, `published`, `writing`, `hub` and `validation` touch the disk.
"""

from __future__ import annotations
