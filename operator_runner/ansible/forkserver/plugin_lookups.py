"""Look up each plugin and module of the loaded collections once.

ansible-core looks for the plugin of each task a dozen times, in the meta data of its collection and
in its folder. These collections are part of the installation: the fork server has loaded them, and
is replaced if one of their files changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
