"""List the names of variables that Ansible uses itself, with Ansible's own code.

The operator does not import ansible-core. So a fork server that has loaded it forks a process that
calls `list_names`; without a fork server, `reserved_names` starts this module as a program, `python
-P -m operator_runner.ansible.list_reserved_names`, with the environment of a run. It reads
`{"parent": PID, "contents": [PATH, ...]}` from standard input and writes what `list_names` returns.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import ansible
import yaml
from ansible import constants
from ansible._internal._templating._engine import TemplateEngine
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.play import Play
from ansible.plugins.loader import init_plugin_loader
from ansible.utils.collection_loader import AnsibleCollectionConfig
from ansible.vars.manager import VariableManager
from ansible.vars.reserved import get_reserved_names
from jinja2.defaults import DEFAULT_NAMESPACE

from operator_runner.ansible.process_tree import die_with_parent

_FRAGMENTS = "doc_fragments"
_MAY_HAVE_VARS = re.compile(rb"\bvars[\"']?\s*:")
_DOCUMENTATION = re.compile(
    rb"""^DOCUMENTATION\s*=\s*[rRuU]?(?:\"{3}.*?\"{3}|'{3}.*?'{3})""", re.DOTALL | re.MULTILINE
)
_SOURCES = (".py", ".yml", ".yaml")
_Loader: Any = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader


def main() -> None:
    """Write the names."""
    arguments = json.load(sys.stdin)
    die_with_parent(arguments["parent"])
    # Output of Ansible must not be mixed with the result.
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    init_plugin_loader()
    with output:
        json.dump(list_names(map(Path, arguments["contents"])), output)


def list_names(contents: Iterable[Path]) -> dict[str, list[str]]:
    """Return the names as `{"acted_on": [...], "keywords": [...]}`; see `ReservedNames`.

    `contents` are the roles and playbooks that are run. Plugins can be loaded already.
    """
    # Jinja's own functions, such as range and namespace, are not used by Ansible.
    functions = {*TemplateEngine().environment.globals} - DEFAULT_NAMESPACE.keys()
    acted_on = {*_settings(), *_magic(), *_options(_plugin_files(contents)), *functions}
    keywords = get_reserved_names() - DEFAULT_NAMESPACE.keys() - acted_on
    return {"acted_on": sorted(acted_on), "keywords": sorted(keywords)}


def _settings() -> Iterator[str]:
    """Yield the variables of ansible-core's own settings and of every connection."""
    for definition in constants.config.get_configuration_definitions().values():
        yield from (source["name"] for source in definition.get("vars") or ())
    for names in constants.MAGIC_VARIABLE_MAPPING.values():
        yield from names
    yield from constants.COMMON_CONNECTION_VARS


def _magic() -> Iterator[str]:
    """Yield the variables that Ansible sets itself."""
    yield from constants.INTERNAL_STATIC_VARS
    loader = DataLoader()
    inventory = InventoryManager(loader=loader, sources=["localhost,"])
    manager = VariableManager(loader=loader, inventory=inventory)
    described = {"hosts": "localhost", "gather_facts": False, "tasks": [{"meta": "noop"}]}
    play = Play.load(described, variable_manager=manager, loader=loader)
    task = play.tasks[0].block[0]
    yield from manager.get_vars(play=play, host=inventory.get_host("localhost"), task=task)


def _plugin_files(contents: Iterable[Path]) -> Iterator[Path]:
    """Yield the plugins of ansible-core, of the collections, and beside roles and playbooks."""
    folders = {Path(ansible.__file__).parent / "plugins"}
    # ansible-core's own list of collections ends at one without a valid version.
    places = [*map(Path, AnsibleCollectionConfig.collection_paths)]
    for content in contents:
        base = content if content.is_dir() else content.parent
        places.append(base / "collections")
        for kind in constants.CONFIGURABLE_PLUGINS:
            yield from _sources(base / f"{kind}_plugins")
    for place in places:
        folders.update(each / "plugins" for each in place.glob("ansible_collections/*/*"))
    for folder in folders:
        for kind in (*constants.CONFIGURABLE_PLUGINS, "strategy", _FRAGMENTS):
            yield from _sources(folder / kind)


def _sources(folder: Path) -> Iterator[Path]:
    """Yield the files, at any depth; with os.walk, as this is done a thousand times at a start."""
    for place, _, names in os.walk(folder):
        for name in names:
            if name.endswith(_SOURCES) and (path := Path(place, name)).is_file():
                yield path


def _options(files: Iterable[Path]) -> Iterator[str]:
    """Yield the variables from which plugins take their options.

    A plugin that cannot be read has none: a play that does not use it must not end here.
    """
    for path in files:
        with contextlib.suppress(OSError, ValueError, SyntaxError, RecursionError, yaml.YAMLError):
            content = path.read_bytes()
            if _MAY_HAVE_VARS.search(content):
                yield from _options_of(path, content)


def _options_of(path: Path, content: bytes) -> set[str]:
    texts = _documentation(path, content)
    return {name for text in texts for name in _variables(yaml.compose(text, Loader=_Loader))}


def _documentation(path: Path, content: bytes) -> Iterator[str]:
    """Yield the documentation of options: of a fragment all strings, since names vary."""
    if path.suffix != ".py":
        yield content.decode(errors="replace")
    elif path.parent.name == _FRAGMENTS:
        yield from _texts(content, None)
    elif found := _DOCUMENTATION.search(content):
        # Parse only the documentation, not the code of the plugin.
        yield from _texts(found.group(), "DOCUMENTATION")
    else:
        yield from _texts(content, "DOCUMENTATION")


def _texts(source: bytes, wanted: str | None) -> Iterator[str]:
    """Yield the texts that Python source assigns to a name; to any one if `wanted` is None."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(text))):
                if wanted in {None, name}:
                    yield text


def _variables(documentation: yaml.Node | None) -> Iterator[str]:
    """Yield the names in all `vars: [{name: ...}]`; of nodes, which are not made to objects."""
    match documentation:
        case yaml.SequenceNode(value=values):
            for value in values:
                yield from _variables(value)
        case yaml.MappingNode(value=pairs):
            for key, value in pairs:
                yield from _variables(value)
                if key.value == "vars" and isinstance(value, yaml.SequenceNode):
                    yield from _names(value.value)


def _names(sources: Iterable[yaml.Node]) -> Iterator[str]:
    pairs = (pair for each in sources if isinstance(each, yaml.MappingNode) for pair in each.value)
    for key, value in pairs:
        if key.value == "name" and isinstance(value, yaml.ScalarNode):
            # In `delegated_vars['ansible_host']` the variable is delegated_vars.
            yield value.value.partition("[")[0]


if __name__ == "__main__":
    main()
