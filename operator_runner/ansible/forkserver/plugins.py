"""Load the plugins of ansible-core before a run, and look up each of them once.

ansible-core looks for the plugin of each task a dozen times, in the meta data of its collection and
in its folder. The loaded collections are part of the installation: the fork server has loaded them,
and is replaced if one of their files changes. For each of Jinja's own filters and tests,
ansible-core goes through all of its plugins before it takes Jinja's.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ansible_runner

from operator_runner.ansible.patches.replacing import wrap
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


_COLLECTIONS = ("ansible.builtin.", "kubernetes.core.", "operator_sdk.util.")
_RESULT = (
    *("resolved", "exit_reason", "pending_redirect", "action_plugin", "_python_module_name"),
    *("plugin_resolved_name", "plugin_resolved_path", "plugin_resolved_collection"),
)
"""Attributes that a lookup without redirection sets."""

_paths: dict[tuple[str, ...], tuple[str, ...]] = {}
_found: dict[tuple[Any, ...], dict[str, Any]] = {}
_redirects: dict[tuple[Any, ...], str] = {}
"""Names to which others are redirected, as `k8s` to `kubernetes.core.k8s`."""


def install_lookups() -> None:
    """Keep results in this process and its forks."""
    wrap("ansible.plugins.loader:PluginLoader._find_fq_plugin", _find)
    wrap("ansible.plugins.loader:PluginLoader.all", _all)
    _spare_jinja_names()


def _find(
    original: Callable[..., Any],
    loader: Any,
    fq_name: str,
    extension: str | None,
    plugin_load_context: Any,
    **options: bool,
) -> Any:
    if not fq_name.startswith(_COLLECTIONS):
        return original(loader, fq_name, extension, plugin_load_context, **options)
    # With it, which is an option until ansible-core 2.20, a deprecation leaves nothing.
    ignores = getattr(plugin_load_context, "ignore_deprecated", None)
    key = (loader.subdir, fq_name, extension, ignores, *options.items())
    if (target := _redirects.get(key)) is not None:
        return _redirect(loader, fq_name, target, plugin_load_context)
    known = _found.get(key)
    if known is None:
        result = original(loader, fq_name, extension, plugin_load_context, **options)
        if result.deprecated:  # which leaves more than the result
            return result
        if result.pending_redirect:
            _redirects[key] = result.pending_redirect
        else:
            _found[key] = {name: getattr(result, name) for name in _RESULT}
        return result
    for name, value in known.items():
        setattr(plugin_load_context, name, value)
    return plugin_load_context


def _redirect(loader: Any, name: str, target: str, plugin_load_context: Any) -> Any:
    """Do what ansible-core does for a redirection without deprecation."""
    from ansible.utils.collection_loader import AnsibleCollectionRef
    from ansible.utils.display import Display

    kind = AnsibleCollectionRef.legacy_plugin_dir_to_plugin_type(loader.subdir)
    Display().vv(f"redirecting (type: {kind}) {name} to {target}")
    if name not in plugin_load_context.redirect_list:
        plugin_load_context.redirect_list.append(name)
    return plugin_load_context.redirect(target)


def _all(
    original: Callable[..., Iterator[Any]], loader: Any, *args: Any, **options: Any
) -> Iterator[Any]:
    """List the files of connection plugins once for each list of folders.

    ansible-core lists them for each task, to leave out facts with their names.
    """
    if loader.subdir != "connection_plugins" or options != {"path_only": True} or args:
        return original(loader, *args, **options)
    folders = tuple(each.path for each in loader._get_paths_with_context())
    if folders not in _paths:
        _paths[folders] = tuple(original(loader, path_only=True))
    return iter(_paths[folders])


def _spare_jinja_names() -> None:
    """Spare templates the search for Jinja's own filters and tests in ansible.builtin.

    Plugins of the user with such a name are found as before.
    """
    from ansible.plugins import loader
    from jinja2 import filters, tests

    known = {
        each.type: frozenset(names) - _names_of_core(each, loader)
        for each, names in (
            (loader.filter_loader, filters.FILTERS),
            (loader.test_loader, tests.TESTS),
        )
    }

    def get_with_context(
        original: Callable[..., Any], self: Any, name: str, *args: Any, **kwargs: Any
    ) -> Any:
        if name in known[self.type] and not args and not kwargs:
            self._ensure_non_collection_wrappers()
            if name not in self._cached_non_collection_wrappers:
                nothing = loader.PluginLoadContext(self.type, self.package)
                return loader.get_with_context_result(None, nothing)
        return original(self, name, *args, **kwargs)

    wrap(f"{loader.__name__}:Jinja2Loader.get_with_context", get_with_context)


def _names_of_core(each: Any, loader: Any) -> set[str]:
    """Return the names of filters or tests that ansible.builtin has, or sends elsewhere."""
    import ansible

    own = Path(ansible.__file__).parent
    loaded = each._module_cache.items()
    modules = (module for path, module in loaded if Path(path).is_relative_to(own))
    plugins = (getattr(module, each.class_name)() for module in modules)
    names = {name for one in plugins for name in getattr(one, each.method_map_name)()}
    routing = loader._get_collection_metadata("ansible.builtin").get("plugin_routing") or {}
    return names | set(routing.get(each.type) or {})
