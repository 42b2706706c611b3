"""Add an item to a YAML list in a file that the user edits, and leave the rest as it is. Pure.

The place is kubebuilder's marker comment, as `operator-sdk` writes it too, or the list's end.
"""

from __future__ import annotations

import re
import textwrap

from operator_runner.core.errors import ConfigError

_ITEM = re.compile(r"( *)- ")


def insert(path: str, text: str, marker: str, key: str, item: str) -> str:
    """Return the text of a file with an item of its list added.

    `item` begins with a dash at the left margin. It goes before the marker comment
    `+kubebuilder:scaffold:<marker>`; without one to the end of the list under `key`, a key of the
    left margin, or to the end of the file if `key` is empty. An existing item is not added again.
    Raises ConfigError with `path` if the marker or key is missing.
    """
    lines = text.splitlines()
    begin, end = _block(lines, key)
    found = re.compile(rf"( *)# *\+kubebuilder:scaffold:{re.escape(marker)}\s*")
    marks = [(at, match) for at, line in enumerate(lines) if (match := found.fullmatch(line))]
    if marks:
        at, indent = marks[0][0], marks[0][1][1]
    elif begin is not None:
        at, indent = end, ""
    else:
        raise ConfigError(
            f"{path}: missing comment `# +kubebuilder:scaffold:{marker}` or list `{key}:` with one "
            f"line for each item; add one of them, or insert this by hand:\n{item}"
        )
    # Indent as the other items: the marker may be further left.
    items = [match for line in lines[begin or 0 : end] if (match := _ITEM.match(line))]
    if items:
        indent = items[0][1]
    new = textwrap.indent(item.rstrip("\n"), indent).splitlines()
    if _contains(lines, new):
        return text
    return "\n".join([*lines[:at], *new, *lines[at:]]) + "\n"


def _block(lines: list[str], key: str) -> tuple[int | None, int]:
    """Return the lines of a list: from the one after its key to the one after its last item."""
    begin = 0
    if key:
        heads = [at for at, line in enumerate(lines) if re.fullmatch(rf"{key}: *(#.*)?", line)]
        if not heads:
            return None, len(lines)
        begin = heads[0] + 1
    end = begin
    for at in range(begin, len(lines)):
        line = lines[at]
        if key and line and not line.startswith((" ", "-", "#")):
            break
        if line.strip() and not line.startswith("#"):
            end = at + 1
    return begin, end


def _contains(lines: list[str], part: list[str]) -> bool:
    inserted = [line.strip() for line in part]
    stripped = [line.strip() for line in lines]
    return any(
        stripped[at : at + len(inserted)] == inserted
        for at in range(len(lines) - len(inserted) + 1)
    )
