"""Compare the objects in the cluster with those that the resources specify."""

from __future__ import annotations

from collections.abc import Mapping

from bench.api import CONFIG_MAP, SERVICE, is_successful
from bench.environment import Site

_DEFAULT_CONFIG_MAPS = {"kube-root-ca.crt"}
"""ConfigMaps in every namespace."""


def violations(site: Site, expected: Mapping[str, int]) -> list[str]:
    """Return the differences; `expected` has the size of each resource by name."""
    kind, namespace = site.setup.kind, site.namespace
    resources = {body["metadata"]["name"]: body for body in site.api.list(kind, namespace)}
    maps = {body["metadata"]["name"]: body for body in site.api.list(CONFIG_MAP, namespace)}
    services = {body["metadata"]["name"] for body in site.api.list(SERVICE, namespace)}
    found = [
        *_differences("resources", set(resources), set(expected)),
        *_differences("ConfigMaps", set(maps) - _DEFAULT_CONFIG_MAPS, set(expected)),
        *_differences("Services", services, set(expected)),
        *_differences("private data dirs", _private_dirs(site), set(expected)),
    ]
    for name, size in expected.items():
        if name in resources and not is_successful(resources[name]):
            found.append(f"{name} is not Successful")
        if name in maps and maps[name]["data"]["size"] != str(size):
            found.append(f"{name}: size is {maps[name]['data']['size']}, expected {size}")
    return found


def _differences(what: str, there: set[str], expected: set[str]) -> list[str]:
    return [
        *(f"{what}: {name} is missing" for name in sorted(expected - there)),
        *(f"{what}: {name} is unexpected" for name in sorted(there - expected)),
    ]


def _private_dirs(site: Site) -> set[str]:
    group, version = site.setup.kind.api_version.split("/")
    folder = site.folders[0] / group / version / site.setup.kind.name / site.namespace
    return {entry.name for entry in folder.iterdir()} if folder.exists() else set()
