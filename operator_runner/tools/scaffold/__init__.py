"""New operator projects: `init` makes the tree of one, `create` adds kinds and fields to it.

`project_file` and `fields` check the user's input, `plan` and `field_plan` turn it into paths and
texts, `commands` puts them on the disk.
"""

from __future__ import annotations
