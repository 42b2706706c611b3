"""Derive the minimal RBAC rules of a project, and check those that its manifests grant.

`requirements` combines the runner's own requests (`operator_requirements`) and the recorded
requests of roles (`role_requirements`); `grants` reads the rules of manifests; `check` compares,
`render` writes.
"""
