"""New operator projects: `init` makes the tree of one, `create api` adds a kind to it.

Stages, a module each: `names` checks the user's input, `plan` turns it into paths and texts
with the help of `templates`, `insertion` and `project_file`, `writer` puts them on the disk.
"""

from __future__ import annotations

from operator_runner.tools.scaffold.commands import create, init

__all__ = ["create", "init"]
