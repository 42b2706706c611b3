"""Load watches.yaml, which maps kinds to roles and playbooks, as immutable values.

Stages, a module each: `expand` the environment in the text, read the YAML `document`, the
keys of a map by type (`map_reader`), one `entry`, the whole file (`loader`). `keys` lists the keys
of an entry, for the loader and for the `schema` of editors.
"""

from __future__ import annotations

from operator_runner.config.watches.loader import Loaded, load, summarize
from operator_runner.config.watches.schema import schema
from operator_runner.config.watches.selection import is_selected

__all__ = ["Loaded", "is_selected", "load", "schema", "summarize"]
