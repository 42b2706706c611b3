"""Paths of tasks, relative to the project as far as their directories show it. Pure."""

from __future__ import annotations

import re

_PLACE = re.compile(r"(?:(?<=' at )/[^\n]*:\d+(?=\)))|(?:(?<=\), )/[^\n]*:\d+$)")
"""The position of a task in a message: `(task 'Refuse' at /opt/roles/page/tasks/main.yml:14)`.

Or at the end of one about a preview: `task Migrate (command), /opt/roles/page/tasks/main.yml:17`.
"""


def short_path(path: str) -> str:
    """Return a path from its last `roles` or `playbooks` on."""
    parts = path.split("/")
    starts = [n for n, part in enumerate(parts) if part in {"roles", "playbooks"}]
    return "/".join(parts[starts[-1] :]) if starts else path


def with_short_paths(message: str) -> str:
    """Return the message of a failed run, or about a task, with a short path of the task."""
    return _PLACE.sub(lambda found: short_path(found[0]), message)
