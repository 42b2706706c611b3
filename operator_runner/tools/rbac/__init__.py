"""Derive the minimal RBAC rules of a project, and check those that its manifests grant.

`requirements` combines the runner's own requests and the recorded requests of roles; `grants` reads
the rules of manifests and compares; `render` writes.
"""
