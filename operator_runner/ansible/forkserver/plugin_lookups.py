"""Look up each plugin and module of the loaded collections once.

ansible-core looks for the plugin of each task a dozen times, in the meta data of its collection and
in its folder. These collections are part of the installation: the fork server has loaded them, and
is replaced if one of their files changes. For each of Jinja's own filters and tests, ansible-core
goes through all of its plugins before it takes Jinja's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from operator_runner.ansible.patches.replacing import wrap

_COLLECTIONS = ("ansible.builtin.", "kubernetes.core.", "operator_sdk.util.")
_RESULT = (
    *("resolved", "exit_reason", "pending_redirect", "action_plugin", "_python_module_name"),
    *("plugin_resolved_name", "plugin_resolved_path", "plugin_resolved_collection"),
)
"""Attributes that a lookup without redirection sets."""

_paths: dict[tuple[str, ...], tuple[str, ...]] = {}
_found: dict[tuple[Any, ...], dict[str, Any]] = {}


def install() -> None:
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
    key = (loader.subdir, fq_name, extension, *options.items())
    known = _found.get(key)
    if known is None:
        result = original(loader, fq_name, extension, plugin_load_context, **options)
        # A redirection and a deprecation leave more than the result.
        if not result.pending_redirect and not result.deprecated:
            _found[key] = {name: getattr(result, name) for name in _RESULT}
        return result
    for name, value in known.items():
        setattr(plugin_load_context, name, value)
    return plugin_load_context


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
