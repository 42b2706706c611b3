"""Discovery: the resource of a kind, with plural, scope, verbs and subresources.

A kind that is not served is explained with the nearest ones that are.
"""

from __future__ import annotations

import asyncio
import difflib
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from urllib.parse import quote

from operator_runner.core.errors import NotFound
from operator_runner.core.model import GVK, Json
from operator_runner.kube.api import Api

_NEAR, _NEAR_OTHER = 0.85, 0.6
"""Similarity of kinds in any groups of which one is a misspelling of the other; and of kinds of one
group, or of groups with the same kind."""


def explain_missing(gvk: GVK, served: Collection[GVK]) -> str:
    """Return cause and hint for a kind that is not among the `served` ones.

    Another version or spelling of the kind in its group; else the most similar kind and group.
    """
    in_group = [each for each in served if each.group == gvk.group]
    if any(each.kind == gvk.kind for each in in_group):
        return f"it is served in {_versions(gvk, served)}; correct `version`, or add it to the CRD"
    for each in in_group:
        if each.kind.lower() == gvk.kind.lower():
            return _did_you_mean(each, served)
    near: dict[GVK, float] = {}
    for each in served:
        kind, group = _similarity(gvk.kind, each.kind), _similarity(gvk.group, each.group)
        # Neither the same kind of quite another group, nor a similar one of a similar group.
        is_one_misspelt = max(kind, group) == 1 and min(kind, group) >= _NEAR_OTHER
        if is_one_misspelt or _NEAR <= kind < 1:
            near[each] = kind + group
    if not near:
        return "its CRD is missing; install it with `kubectl apply -f`"
    nearest = max(near, key=near.__getitem__)
    hint = " If not, install its CRD with `kubectl apply -f`"
    return _did_you_mean(nearest, served) + hint


def _similarity(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one.lower(), other.lower()).ratio()


def _versions(kind: GVK, served: Collection[GVK]) -> str:
    *first, last = (x.version for x in served if (x.group, x.kind) == (kind.group, kind.kind))
    return f"{', '.join(first)} and {last}" if first else last


def _did_you_mean(kind: GVK, served: Collection[GVK]) -> str:
    in_group = f" in group {kind.group}" if kind.group else ""
    return f"did you mean {kind.kind}{in_group}, served in {_versions(kind, served)}?"


_AGGREGATED = (
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
)
_MIN_REFRESH_SECONDS = 2.0
"""Between two requests for a group version whose kind is unknown."""


@dataclass(frozen=True, slots=True)
class ApiResource:
    """A resource that the API server serves; subresources without the slash: `status`, `scale`."""

    gvk: GVK
    plural: str
    namespaced: bool
    subresources: frozenset[str] = frozenset()
    verbs: frozenset[str] = frozenset()
    aliases: frozenset[str] = frozenset()
    """Singular and short names, as kubectl accepts them."""

    def path(self, namespace: str | None = None, name: str = "", subresource: str = "") -> str:
        """Return the path of the collection, of one object or of its subresource.

        `namespace` is ignored for cluster-scoped kinds; without it, the collection is that of
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
    """Caches what the API server serves; a missing kind refreshes the cache.

    One request of aggregated discovery returns all groups. A group version that is missing in
    it gets a request of its own: API servers before 1.27 do not support aggregated discovery,
    and it omits the groups of unavailable aggregated APIs.
    """

    def __init__(self, api: Api) -> None:
        """Send nothing yet."""
        self._api = api
        self._tables: dict[tuple[str, str], list[ApiResource]] = {}
        self._served: list[GVK] = []
        """All kinds of the last aggregated discovery."""
        self._requested_at: dict[tuple[str, str], float] = {}
        self._lock = asyncio.Lock()

    async def resource(self, gvk: GVK) -> ApiResource:
        """Return the resource of a kind; NotFound if its CRD is missing, else ApiError."""
        found = await self._find(gvk.group, gvk.version, lambda known: known.gvk.kind == gvk.kind)
        if found is None:
            reason = explain_missing(gvk, self._served)
            raise NotFound(f"no kind {gvk.kind} in {gvk.api_version}: {reason}", 404)
        return found

    async def resource_named(self, group: str, version: str, plural: str) -> ApiResource:
        """Return the resource of a plural as in paths; NotFound if it does not exist."""
        found = await self._find(group, version, lambda known: known.plural == plural)
        if found is None:
            where = GVK(group, version, "").api_version
            raise NotFound(f"no resource {plural} in {where}", 404)
        return found

    async def served(self) -> list[ApiResource]:
        """Return all resources in all their versions.

        The core group is first, the others follow in the order of the API server, in which kubectl
        searches them. The preferred version of a group is first.
        """
        core = ("", "v1")
        async with self._lock:
            await self._refresh(core)
            answer = await self._api.request("GET", "/apis", accept=_AGGREGATED)
            known = self._tables
            self._tables = {core: known.get(core, []), **dict(_aggregated(answer))}
            for group_version, table in known.items():
                self._tables.setdefault(group_version, table)
            # An older API server lists the groups alone.
            for group in answer.get("groups") or ():
                for version in group["versions"]:
                    await self._refresh((group["name"], version["version"]))
        return [each for table in self._tables.values() for each in table]

    async def preferred(self, group: str, kind: str) -> ApiResource | None:
        """Return the resource of a kind in the first version of its group; None if not served."""
        if (found := self._first(group, kind)) is None:
            await self.served()
            found = self._first(group, kind)
        return found

    def forget(self, gvk: GVK) -> None:
        """Drop the cached kinds of this group and version: one of them may have been deleted."""
        self._tables.pop((gvk.group, gvk.version), None)
        self._requested_at.pop((gvk.group, gvk.version), None)

    async def _find(
        self, group: str, version: str, matches: Callable[[ApiResource], bool]
    ) -> ApiResource | None:
        group_version = (group, version)
        if found := self._known(group_version, matches):
            return found
        async with self._lock:
            if found := self._known(group_version, matches):
                return found
            now = time.monotonic()
            if (
                now - self._requested_at.get(group_version, -_MIN_REFRESH_SECONDS)
                >= _MIN_REFRESH_SECONDS
            ):
                await self._refresh(group_version)
                self._requested_at[group_version] = now
            return self._known(group_version, matches)

    def _first(self, group: str, kind: str) -> ApiResource | None:
        known = (each for table in self._tables.values() for each in table)
        return next((x for x in known if (x.gvk.group, x.gvk.kind) == (group, kind)), None)

    def _known(
        self, group_version: tuple[str, str], matches: Callable[[ApiResource], bool]
    ) -> ApiResource | None:
        return next(filter(matches, self._tables.get(group_version, ())), None)

    async def _refresh(self, group_version: tuple[str, str]) -> None:
        group, version = group_version
        root = "/apis" if group else "/api"
        answer = await self._api.request("GET", root, accept=_AGGREGATED)
        tables = dict(_aggregated(answer))
        self._tables.update(tables)
        self._served = [each.gvk for table in tables.values() for each in table]
        if group_version not in tables:
            path = f"{root}/{group}/{version}" if group else f"{root}/{version}"
            try:
                listed = await self._api.request("GET", path)
            except NotFound:
                self._tables.pop(group_version, None)
            else:
                self._tables[group_version] = _listed(listed, group, version)


def _aggregated(answer: Json) -> Iterator[tuple[tuple[str, str], list[ApiResource]]]:
    """Decode an APIGroupDiscoveryList; yields nothing for the response of an older API server."""
    for group in answer.get("items", []):
        name = group.get("metadata", {}).get("name", "")
        for version in group.get("versions", []):
            # A stale entry is of an aggregated API that is unavailable.
            if version.get("freshness") == "Current":
                resources = [
                    _resource(GVK(name, version["version"], kind), entry)
                    for entry in version.get("resources", [])
                    if (kind := (entry.get("responseKind") or {}).get("kind"))
                ]
                yield (name, version["version"]), resources


def _resource(gvk: GVK, entry: Json) -> ApiResource:
    return ApiResource(
        gvk,
        entry["resource"],
        entry["scope"] == "Namespaced",
        frozenset(sub["subresource"] for sub in entry.get("subresources", [])),
        frozenset(entry.get("verbs", [])),
        _aliases(entry, "singularResource"),
    )


def _aliases(entry: Json, singular: str) -> frozenset[str]:
    return frozenset(filter(None, (entry.get(singular), *(entry.get("shortNames") or ()))))


def _listed(answer: Json, group: str, version: str) -> list[ApiResource]:
    """Decode an APIResourceList, whose subresources are separate entries: `pods/log`."""
    entries = answer.get("resources") or []
    names = [entry["name"].partition("/") for entry in entries]
    return [
        ApiResource(
            GVK(group, version, entry["kind"]),
            entry["name"],
            entry["namespaced"],
            frozenset(sub for parent, _, sub in names if sub and parent == entry["name"]),
            frozenset(entry.get("verbs", [])),
            _aliases(entry, "singularName"),
        )
        for entry in entries
        if "/" not in entry["name"]
    ]
