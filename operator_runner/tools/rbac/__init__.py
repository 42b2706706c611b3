"""Derive the minimal RBAC rules of a project, and check those that its manifests grant.

`requirements` combines the runner's own requests (`runner`) and the recorded requests of roles
(`roles`); `grants` reads the rules of manifests; `check` compares, `render` writes.
"""
