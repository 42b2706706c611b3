"""The kubeconfig file format: render one, and read and merge several as client-go does.

Source: client-go, tools/clientcmd (loader.go, validation.go).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from operator_runner.core.model import Json

_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
"""libyaml if available: ten times as fast."""

_CLUSTER_PATHS = ("certificate-authority",)
CREDENTIAL_PATHS = ("client-certificate", "client-key", "tokenFile")
"""Fields of a user that name a file."""
_SHAPE = (
    "invalid kubeconfig {file}: expected a map of kind Config with the lists clusters, contexts "
    "and users, each of maps"
)
_STRINGS = (
    *("server", "tls-server-name", "proxy-url", "username", "password", "token", "tokenFile"),
    *("as", "as-uid", "cluster", "user", "namespace", "certificate-authority", "client-key"),
    *("client-certificate", "certificate-authority-data", "client-certificate-data"),
    *("client-key-data", "command", "apiVersion", "installHint", "interactiveMode"),
)
_TYPES: dict[str, type] = {
    **dict.fromkeys(_STRINGS, str),
    **dict.fromkeys(
        ("insecure-skip-tls-verify", "disable-compression", "provideClusterInfo"), bool
    ),
    **dict.fromkeys(("as-user-extra", "auth-provider", "exec"), dict),
    **dict.fromkeys(("args", "env", "as-groups", "extensions"), list),
}
"""Types of the fields of clusters, users, contexts and exec. Unknown fields are ignored."""
_EXPECTED = {
    str: "a string, with quotes if it looks like a number",
    list: "a list",
    dict: "a map",
    bool: "true or false, without quotes",
}


class KubeconfigError(ValueError):
    """The content of a kubeconfig is invalid."""


@dataclass(frozen=True, slots=True)
class MergedKubeconfig:
    """Clusters, users and contexts of one or several files by name; their paths are absolute."""

    clusters: dict[str, dict[str, Any]] = field(default_factory=dict)
    users: dict[str, dict[str, Any]] = field(default_factory=dict)
    contexts: dict[str, dict[str, Any]] = field(default_factory=dict)
    current: str = ""
    """The current context; empty if no file sets one."""


def render_kubeconfig(
    name: str, *, cluster: Mapping[str, str], user: Mapping[str, str], namespace: str
) -> str:
    """Return a kubeconfig whose only cluster, user and context are called `name`."""
    context = {"cluster": name, "user": name, "namespace": namespace}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": dict(cluster)}],
        "users": [{"name": name, "user": dict(user)}],
        "contexts": [{"name": name, "context": context}],
    }
    text: str = yaml.dump(content, Dumper=_DUMPER, sort_keys=False)
    return text


def kubeconfig_files(names: str) -> list[Path]:
    """Return the files that a list such as KUBECONFIG names, existing or not."""
    return [Path(name).expanduser().absolute() for name in names.split(os.pathsep) if name]


def read_kubeconfigs(files: Iterable[Path]) -> MergedKubeconfig:
    """Merge files: the first one that has a name, or sets the current context, decides.

    Missing and empty files are skipped. Raises OSError, YAMLError and KubeconfigError.
    """
    merged, current = MergedKubeconfig(), ""
    for file in dict.fromkeys(files):
        try:
            with file.open("rb") as content:
                config = yaml.load(content, yaml.CSafeLoader)
        except FileNotFoundError:
            continue
        if config is None:
            continue
        if not isinstance(config, dict) or config.get("kind", "Config") != "Config":
            raise KubeconfigError(_SHAPE.format(file=file))
        for kind, key, into, paths in (
            ("clusters", "cluster", merged.clusters, _CLUSTER_PATHS),
            ("users", "user", merged.users, CREDENTIAL_PATHS),
            ("contexts", "context", merged.contexts, ()),
        ):
            for name, entry in _entries(file, config.get(kind), key).items():
                into.setdefault(name, _with_absolute_paths(entry, paths, file.parent))
        current = current or str(config.get("current-context") or "")
    return MergedKubeconfig(merged.clusters, merged.users, merged.contexts, current)


def _entries(file: Path, content: Any, key: str) -> dict[str, dict[str, Any]]:
    entries: dict[str, dict[str, Any]] = {}
    if not isinstance(content or [], list):
        raise KubeconfigError(_SHAPE.format(file=file))
    for each in content or []:
        entry = (each.get(key) or {}) if isinstance(each, dict) and "name" in each else None
        if not isinstance(entry, dict):
            raise KubeconfigError(_SHAPE.format(file=file))
        name = str(each["name"])
        if name in entries:
            raise KubeconfigError(f"{file} has two {key}s called {name}: rename one of them")
        _check_types(file, entry)
        _check_types(file, entry.get("exec") or {})
        entries[name] = entry
    return entries


def _check_types(file: Path, entry: Json) -> None:
    for name, value in entry.items():
        kind = _TYPES.get(name, object)
        if value is not None and not isinstance(value, kind):
            raise KubeconfigError(f"invalid kubeconfig {file}: {name} must be {_EXPECTED[kind]}")


def _with_absolute_paths(entry: Json, paths: Iterable[str], folder: Path) -> dict[str, Any]:
    """Return an entry without unset fields, and with paths below the folder of its file."""
    found = {key: value for key, value in entry.items() if value}
    for key in paths:
        if key in found:
            found[key] = str(folder / found[key])
    plugin = found.get("exec", {})
    if os.sep in (plugin.get("command") or ""):
        found["exec"] = {**plugin, "command": str(folder / plugin["command"])}
    return found
