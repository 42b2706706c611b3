"""New operator projects: `init` makes the tree of one, `create api` adds a kind to it.

`project_file` checks the user's input, `plan` turns it into paths and texts, `commands` puts them
on the disk.
"""

from __future__ import annotations

from operator_runner.tools.scaffold.commands import create, init

__all__ = ["create", "init"]
