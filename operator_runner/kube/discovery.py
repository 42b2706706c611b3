"""Which resource serves a kind: plural, scope and subresources, asked of the API server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import quote

from operator_runner.core.errors import NotFound
from operator_runner.core.model import GVK, Json
from operator_runner.kube.api import Api

_AGGREGATED = (
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
)
_REFRESH_EVERY = 2.0
"""Seconds: a group version whose kind is unknown is not asked for more often than this."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind as the API server serves it; subresources without the slash: `status`, `scale`."""

    gvk: GVK
    plural: str
    namespaced: bool
    subresources: frozenset[str] = frozenset()
    verbs: frozenset[str] = frozenset()

    def path(self, namespace: str | None = None, name: str = "", subresource: str = "") -> str:
        """Return the path of the collection, of one object or of its subresource.

        `namespace` is ignored for a cluster-scoped kind; without it the collection is that of
        all namespaces.
        """
        gvk = self.gvk
        parts = [f"/apis/{gvk.group}/{gvk.version}" if gvk.group else f"/api/{gvk.version}"]
        if self.namespaced and namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        if name:
            parts.append(quote(name, safe=":"))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


class Discovery:
    """Remembers what the API server serves and asks again when a kind is not known yet.

    One request tells all groups. A group version that is missing there is asked for by itself:
    an API server before 1.27 knows no other way, and an aggregated API that is down answers
    for its own group only.
    """

    def __init__(self, api: Api) -> None:
        """Ask nothing yet."""
        self._api = api
        self._tables: dict[tuple[str, str], list[Resource]] = {}
        self._asked: dict[tuple[str, str], float] = {}
        self._lock = asyncio.Lock()

    async def resource(self, gvk: GVK) -> Resource:
        """Return the resource of a kind; NotFound if its CRD is missing, else ApiError."""
        found = await self._find(gvk.group, gvk.version, lambda known: known.gvk.kind == gvk.kind)
        if found is None:
            raise NotFound(
                f"the API server knows no kind {gvk.kind} in {gvk.api_version}: "
                "its CRD is missing; install it with `kubectl apply -f`",
                404,
            )
        return found

    async def resource_named(self, group: str, version: str, plural: str) -> Resource:
        """Return the resource of a plural as it stands in paths; NotFound if there is none."""
        found = await self._find(group, version, lambda known: known.plural == plural)
        if found is None:
            where = GVK(group, version, "").api_version
            raise NotFound(f"the API server knows no resource {plural} in {where}", 404)
        return found

    async def listable(self) -> list[Resource]:
        """Return what can be listed in a namespace, each resource in one of its versions."""
        found: dict[tuple[str, str], Resource] = {}
        async with self._lock:
            for wanted in (("", "v1"), ("apps", "v1")):
                await self._refresh(wanted)
        for table in self._tables.values():
            for each in table:
                if each.namespaced and "list" in each.verbs:
                    found.setdefault((each.gvk.group, each.plural), each)
        return list(found.values())

    def forget(self, gvk: GVK) -> None:
        """Ask anew for the kinds of this group and version: one of them may have gone."""
        self._tables.pop((gvk.group, gvk.version), None)
        self._asked.pop((gvk.group, gvk.version), None)

    async def _find(
        self, group: str, version: str, matches: Callable[[Resource], bool]
    ) -> Resource | None:
        wanted = (group, version)
        if found := self._known(wanted, matches):
            return found
        async with self._lock:
            if found := self._known(wanted, matches):
                return found
            now = time.monotonic()
            if now - self._asked.get(wanted, -_REFRESH_EVERY) >= _REFRESH_EVERY:
                await self._refresh(wanted)
                self._asked[wanted] = now
            return self._known(wanted, matches)

    def _known(
        self, wanted: tuple[str, str], matches: Callable[[Resource], bool]
    ) -> Resource | None:
        return next(filter(matches, self._tables.get(wanted, ())), None)

    async def _refresh(self, wanted: tuple[str, str]) -> None:
        group, version = wanted
        root = "/apis" if group else "/api"
        answer = await self._api.request("GET", root, accept=_AGGREGATED)
        tables = dict(_aggregated(answer))
        self._tables.update(tables)
        if wanted not in tables:
            path = f"{root}/{group}/{version}" if group else f"{root}/{version}"
            try:
                listed = await self._api.request("GET", path)
            except NotFound:
                self._tables.pop(wanted, None)
            else:
                self._tables[wanted] = _listed(listed, group, version)


def _aggregated(answer: Json) -> Iterator[tuple[tuple[str, str], list[Resource]]]:
    """Read an APIGroupDiscoveryList; an older server's answer has no items and gives nothing."""
    for group in answer.get("items", []):
        name = group.get("metadata", {}).get("name", "")
        for version in group.get("versions", []):
            # A stale entry is what an aggregated API said before it went away.
            if version.get("freshness") == "Current":
                resources = [
                    _resource(GVK(name, version["version"], kind), entry)
                    for entry in version.get("resources", [])
                    if (kind := (entry.get("responseKind") or {}).get("kind"))
                ]
                yield (name, version["version"]), resources


def _resource(gvk: GVK, entry: Json) -> Resource:
    return Resource(
        gvk,
        entry["resource"],
        entry["scope"] == "Namespaced",
        frozenset(sub["subresource"] for sub in entry.get("subresources", [])),
        frozenset(entry.get("verbs", [])),
    )


def _listed(answer: Json, group: str, version: str) -> list[Resource]:
    """Read an APIResourceList, where subresources are entries of their own: `pods/log`."""
    entries = answer.get("resources") or []
    names = [entry["name"].partition("/") for entry in entries]
    return [
        Resource(
            GVK(group, version, entry["kind"]),
            entry["name"],
            entry["namespaced"],
            frozenset(sub for parent, _, sub in names if sub and parent == entry["name"]),
            frozenset(entry.get("verbs", [])),
        )
        for entry in entries
        if "/" not in entry["name"]
    ]
