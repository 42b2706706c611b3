"""Find the tasks whose templates may call plugins that leave something behind in their process.

A template is a text of the task, of what the task is in, of a variable or of a file. Variables are
evaluated when they are used, so a task that names a variable may call what the variable names.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import ansible
from ansible.plugins import loader as loaders
from ansible.template import is_trusted_as_template
from ansible.utils.collection_loader import AnsibleCollectionConfig

from operator_runner.ansible.plugin_memory import KINDS, Plugin, plugins_in, plugins_of_collections

_CORE = str(Path(ansible.__file__).parent)
_WORD = re.compile(r"\w+")
_COMPUTED_NAME = re.compile(
    r"\b(?:map|select|reject|lookup|query|q)\(\s*(?!attribute\b|default\b)[^\s'\")]"
    r"|\b(?:select|reject)attr\([^,)]*,\s*[^\s'\"]"
)
"""A call of a plugin whose name is not a literal."""
_TEMPLATE_ARGUMENTS = ("_raw_params", "path", "src", "template")
_IN_ROLE = re.compile(r"\w|\{\{ ?role_path ?\}\}/templates/")
_LOOKUP_ELSEWHERE = re.compile(r"template['\"]\s*,(?!\s*['\"]\w)|['\"]/|\.\./")
_ANY_VARIABLE = {"vars", "hostvars", "varnames"}
_PLAY_FIELDS = ("environment", "module_defaults")


def calls_plugins_with_memory(work: Any) -> bool:
    """Whether the task may call such a plugin, or load one that does something when it is loaded.

    `work` has the attributes of a WorkerProcess.
    """
    plugins = _plugins_with_memory()
    if not plugins:
        return False
    if any(_is_always_loaded(plugin) or plugin.names is None for plugin in plugins):
        return True
    names = {name for plugin in plugins for name in plugin.names or ()}
    texts = list(_texts_around(work.task))
    words = _words(texts)
    callers = names | _variables_with(names, work.task_vars)
    if words & callers or any(name.startswith("ansible_") for name in callers - names):
        return True
    if callers - names and words & _ANY_VARIABLE:
        return True
    if any(_COMPUTED_NAME.search(text) for text in texts):
        return True
    return "template" in words and _templates_have(callers, work.task, texts)


def _plugins_with_memory() -> tuple[Plugin, ...]:
    folders: list[tuple[str, str]] = []
    for kind in KINDS:
        loader = getattr(loaders, f"{kind}_loader")
        own = (each for each in loader._get_paths(subdirs=False) if not each.startswith(_CORE))
        folders += ((each, kind) for each in own if os.path.isdir(each))  # noqa: PTH112
    finder = AnsibleCollectionConfig.collection_finder
    return _read((*folders, *((path, "") for path in finder._n_collection_paths)))


@functools.cache
def _read(folders: tuple[tuple[str, str], ...]) -> tuple[Plugin, ...]:
    """Return the plugins with memory in folders of plugins and of collections."""
    found = [plugin for each in folders for plugin in _read_folder(*each)]
    return tuple(plugin for plugin in found if plugin.memory)


@functools.cache
def _read_folder(folder: str, kind: str) -> tuple[Plugin, ...]:
    path = Path(folder)
    return tuple(plugins_in(path, kind) if kind else plugins_of_collections(path))


def _is_always_loaded(plugin: Plugin) -> bool:
    """Whether any template loads the plugin, and loading it may change the process.

    Jinja's plugins are loaded together, other ones when they are called.
    """
    return plugin.changes_when_loaded and plugin.kind != "lookup"


def _texts_around(task: Any) -> Iterator[str]:
    """Yield the texts of a task and of the blocks, includes and plays that it is in."""
    each = task
    while each is not None:
        yield from _texts_of(each)
        play = getattr(each, "_play", None)
        each = getattr(each, "_parent", None)
        if each is None and play is not None:
            yield from _texts([getattr(play, f"_{name}", None) for name in _PLAY_FIELDS])


def _texts_of(each: Any) -> Iterator[str]:
    for name in each.fattributes:
        if name not in {"block", "rescue", "always"}:
            yield from _texts(getattr(each, f"_{name}", None))


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts in a value, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from _texts(key)
            yield from _texts(each)
    elif isinstance(value, list | tuple | set):
        for each in value:
            yield from _texts(each)
    elif hasattr(value, "fattributes"):
        yield from _texts_of(value)


def _words(texts: Iterable[str]) -> set[str]:
    return {word for text in texts for word in _WORD.findall(text)}


def _variables_with(names: set[str], variables: dict[str, Any]) -> set[str]:
    """Return the variables whose templates name one of `names`, or another such variable."""
    words = {name: _words(_templates(value)) for name, value in variables.items()}
    found: set[str] = set()
    while new := {name for name, has in words.items() if has & (names | found)} - found:
        found |= new
    return found


def _templates(value: Any) -> Iterator[str]:
    """Yield the texts that Ansible evaluates: those of authors, not of resources and results."""
    return filter(is_trusted_as_template, _texts(value))


def _templates_have(names: set[str], task: Any, texts: Iterable[str]) -> bool:
    """Whether a file that a task may use as a template has one of the names.

    A file outside of the templates of the role is not looked for: it may have.
    """
    paths = _texts([task._args.get(key) for key in _TEMPLATE_ARGUMENTS])
    if task._role is None or any(".." in path or not _IN_ROLE.match(path) for path in paths):
        return True
    if any(_LOOKUP_ELSEWHERE.search(text) for text in texts):
        return True
    return bool(names & _words_in(Path(task._role._role_path, "templates")))


@functools.cache
def _words_in(folder: Path) -> frozenset[str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return frozenset(_words(path.read_text(errors="replace") for path in files))
