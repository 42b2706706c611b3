"""The file PROJECT: the names of a project and of its kinds. Pure.

`operator-sdk` reads and writes the same file; its other keys are kept.
"""

from __future__ import annotations

from typing import Any

import yaml

from operator_runner.core.errors import ConfigError
from operator_runner.tools.scaffold.names import ApiNames, Project
from operator_runner.tools.yaml_io import load

PATH = "PROJECT"

# Plugins of operator-sdk that support the project.
_LAYOUT = "ansible.sdk.operatorframework.io/v1"
_PLUGINS: dict[str, Any] = {
    "manifests.sdk.operatorframework.io/v2": {},
    "scorecard.sdk.operatorframework.io/v2": {},
}
_HEADER = "# Kinds of the project, written by `operator-runner create api` and operator-sdk.\n"


def new(project: Project) -> str:
    """Return the text of a new project's file."""
    return _dump(
        _HEADER,
        {
            "domain": project.domain,
            "layout": [_LAYOUT],
            "plugins": _PLUGINS,
            "projectName": project.name,
            "version": "3",
        },
    )


def read(text: str) -> Project:
    """Return the project of a file."""
    content = _load(text)
    name, domain = content.get("projectName"), content.get("domain", "")
    if not isinstance(name, str) or not isinstance(domain, str):
        raise ConfigError(f"{PATH}: invalid `projectName` or `domain`: expected text in both")
    layout = content.get("layout")
    if _LAYOUT not in (layout if isinstance(layout, list) else [layout]):
        raise ConfigError(f"{PATH}: unsupported `layout` {layout!r}: expected {_LAYOUT}")
    return Project(name, domain, multigroup=bool(content.get("multigroup")))


def kinds(text: str) -> tuple[ApiNames, ...]:
    """Return the kinds that were made."""
    return tuple(
        ApiNames(
            str(entry.get("group") or ""),
            str(entry.get("version") or ""),
            str(entry.get("kind") or ""),
            str(entry.get("plural") or ""),
        )
        for entry in _load(text).get("resources") or ()
    )


def add(text: str, api: ApiNames, crd_version: str, *, regular_plural: bool) -> str:
    """Return the text with one more kind."""
    content = _load(text)
    entry: dict[str, Any] = {
        "api": {"crdVersion": crd_version, "namespaced": True},
        "domain": content.get("domain", ""),
        "group": api.group,
        "kind": api.kind,
        "version": api.version,
    }
    if not api.group:
        del entry["group"]
    if not regular_plural:
        entry["plural"] = api.plural
    content["resources"] = [*(content.get("resources") or ()), entry]
    header = "".join(line for line in text.splitlines(keepends=True) if line.startswith("#"))
    return _dump(header, content)


def _load(text: str) -> dict[str, Any]:
    content = load(text, PATH)
    if not isinstance(content, dict):
        raise ConfigError(f"{PATH}: expected a mapping with projectName, domain and layout")
    return content


def _dump(header: str, content: dict[str, Any]) -> str:
    return header + str(yaml.safe_dump(content, sort_keys=True, allow_unicode=True))
