"""The template trees of the package: their paths are those of the project, their texts Jinja.

A path has `{kind}` where a name goes, a text `[[ kind ]]`: `{{ }}` is Ansible's.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

import jinja2

from operator_runner.tools.yaml_io import dump_in_order, dump_variables

_SUFFIX = ".j2"
_JINJA = jinja2.Environment(
    block_start_string="[%",
    block_end_string="%]",
    variable_start_string="[[",
    variable_end_string="]]",
    comment_start_string="[#",
    comment_end_string="#]",
    trim_blocks=True,
    keep_trailing_newline=True,
    undefined=jinja2.StrictUndefined,
    autoescape=False,  # noqa: S701 - YAML and Markdown of names that are checked, no HTML
)


def _yaml(dump: Callable[[Any], str], value: Any, indent: int = 0) -> str:
    """Return a value as YAML whose lines are all indented, without a line break at the end."""
    return textwrap.indent(dump(value).removesuffix("\n"), " " * indent)


def _cell(text: str) -> str:
    """Return text as code in a table of Markdown, nothing for no text."""
    return f"`{text.replace('|', chr(92) + '|')}`" if text else ""


_JINJA.filters |= {
    "yaml": partial(_yaml, dump_in_order),
    "variables": partial(_yaml, dump_variables),
    "cell": _cell,
}


def tree(name: str, values: Mapping[str, Any]) -> dict[str, str]:
    """Return the text of each file of a template tree, by its path in the project."""
    root = files(__package__) / "templates" / name
    return {
        path.removesuffix(_SUFFIX).format(**values): _JINJA.from_string(text).render(values)
        for path, text in _walk(root, "")
    }


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, str]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        path = prefix + entry.name
        if entry.is_dir():
            yield from _walk(entry, path + "/")
        elif path.endswith(_SUFFIX):
            yield path, entry.read_text(encoding="utf-8")
