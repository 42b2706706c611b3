"""Least privilege: which rights a project needs, as manifests and as a check of those it has.

`needs` puts together what the runner itself does (`runner`) and what roles have asked for
(`roles`); `grants` reads what manifests give; `check` compares, `render` writes.
"""
