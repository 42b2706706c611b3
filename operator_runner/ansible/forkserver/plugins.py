"""Load the plugins of ansible-core before a run."""

from __future__ import annotations

import ast
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ansible_runner

from operator_runner.core.ansible_modules import Trait, modules_with

_ACTIONS = (
    "normal",  # of modules without an action plugin
    *(
        name.removeprefix("ansible.builtin.")
        for name in sorted(modules_with(Trait.PRELOADED_ACTION))
    ),
)
_PLUGINS = (
    *("become", "cache", "callback", "connection", "filter", "inventory", "lookup", "shell"),
    *("strategy", "test", "vars"),
)
DISPLAY = os.path.realpath(
    Path(ansible_runner.__file__).parent / "display_callback" / "callback" / "awx_display.py"
)
"""ansible-runner's callback plugin: changes how ansible-core displays when it is imported."""


def load_plugins() -> None:
    """Import ansible-core's plugins and read the settings that they document."""
    from ansible.plugins import loader

    loader.init_plugin_loader()
    for kind in _PLUGINS:
        _load_all(getattr(loader, f"{kind}_loader"))
    for name in _ACTIONS:
        loader.action_loader.get(name, class_only=True)
    _load_display_settings(loader.callback_loader)


def _load_all(loader: Any) -> None:
    """Load ansible-core's own plugins: other plugins may have effects when they are loaded."""
    import ansible
    from ansible.plugins.loader import PluginLoadContext, PluginLoader, PluginPathContext

    own = Path(ansible.__file__).parent
    for path in PluginLoader.all(loader, path_only=True):
        if not Path(path).is_relative_to(own):
            continue
        name = Path(path).stem
        context = PluginLoadContext(loader.type, loader.package)
        context.resolve_legacy(name, {name: PluginPathContext(path, True)})
        module = loader._load_module_source(
            python_module_name=context._python_module_name, path=path
        )
        loader._module_cache[path] = module
        _load_settings(loader, name, module, path)
    # A play is to look for directories itself; that of variables also takes these as a sign
    # that it has looked for all of its plugins.
    loader._paths = None


def _load_settings(loader: Any, name: str, module: Any, path: str) -> None:
    """Read the settings that the plugin documents, and record it if there are no settings.

    ansible-core reads the documentation of a plugin without settings again at each use.
    """
    from ansible import constants
    from ansible.plugins.loader import get_plugin_class

    loader._load_config_defs(name, module, path)
    kind = get_plugin_class(loader.class_name)
    if not constants.config.has_configuration_definition(kind, name):
        constants.config.initialize_plugin_configuration_definitions(kind, name, {})


def _load_display_settings(loader: Any) -> None:
    """Read the settings of ansible-runner's callback plugin, which only a play may import."""
    source = Path(DISPLAY).read_bytes()
    documentation = next(
        ast.literal_eval(statement.value)
        for statement in ast.parse(source).body
        if isinstance(statement, ast.Assign)
        and ast.unparse(statement.targets[0]) == "DOCUMENTATION"
    )
    settings = SimpleNamespace(DOCUMENTATION=documentation)
    _load_settings(loader, Path(DISPLAY).stem, settings, DISPLAY)
