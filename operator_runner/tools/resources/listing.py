"""Read the resources of operators: those that are named, or all that an operator has handled."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass, field

from operator_runner.core.errors import ApiError, ConfigError, Forbidden, NotFound
from operator_runner.core.model import GVK, Json, ObjectRef
from operator_runner.kube.api import FIELD_MANAGER, JSON, METADATA_LIST, Api, list_pages
from operator_runner.kube.discovery import ApiResource
from operator_runner.tools.operator_api.watched_kinds import WatchedKind
from operator_runner.tools.resources.cluster import ClusterView, concurrently

ACCEPT_METADATA = f"{METADATA_LIST},{JSON}"
"""Lists of metadata; an aggregated API without support for these sends whole objects."""


@dataclass(slots=True)
class ResourceSelection:
    """Selection of `get`: kinds as a whole, or single resources of a kind.

    `namespace` None means all.
    """

    namespace: str | None
    kinds: list[ApiResource] = field(default_factory=list)
    names: dict[GVK, set[str]] = field(default_factory=dict)
    """Names of resources, by kind; a kind without an entry is shown as a whole."""
    watched: dict[GVK, list[WatchedKind]] = field(default_factory=dict)
    """Which resources of a kind operators watch; a kind without an entry is shown as a whole."""
    forbidden: list[ApiResource] = field(default_factory=list)
    """Kinds that could not be searched for lack of permissions."""
    forbidden_watched: list[ApiResource] = field(default_factory=list)
    """Those that an operator watches."""
    errors: list[ApiError] = field(default_factory=list)
    """Why chosen resources or kinds could not be read."""

    def has(self, ref: ObjectRef, body: Json) -> bool:
        """Return whether a resource of one of the kinds is chosen."""
        if ref.gvk in self.watched:
            return any(each.has(ref, body) for each in self.watched[ref.gvk])
        return ref.gvk not in self.names or ref.name in self.names[ref.gvk]


async def select(
    cluster: ClusterView,
    wanted: Sequence[str],
    namespace: str | None,
    watched: Collection[WatchedKind] = (),
) -> ResourceSelection:
    """Return the selection for arguments KIND and KIND/NAME.

    Without arguments it has all kinds with a resource that an operator has handled, and those of
    `watched`. Raises ApiError; ConfigError for an unknown kind.
    """
    selection = ResourceSelection(namespace)
    if not wanted:
        return await all_kinds(cluster, selection, watched)
    whole: set[GVK] = set()
    for text in wanted:
        kind, _, name = text.partition("/")
        try:
            resource = cluster.resource(kind)
        except ConfigError as error:
            if name or text == wanted[0]:
                raise
            first = wanted[0].partition("/")[0]
            raise ConfigError(f"{error}. To name a resource, write {first}/{text}") from error
        if resource not in selection.kinds:
            selection.kinds.append(resource)
        if name:
            selection.names.setdefault(resource.gvk, set()).add(name)
        else:
            whole.add(resource.gvk)
    for gvk in whole:
        selection.names.pop(gvk, None)
    return selection


async def all_kinds(
    cluster: ClusterView, selection: ResourceSelection, watched: Collection[WatchedKind]
) -> ResourceSelection:
    """Add the kinds of CRDs with a resource that an operator has written to, and watched ones.

    Operators that answer name the watched kinds: those without a trace of an operator in their
    resources, such as built-in ones.
    """
    await _add_handled_kinds(cluster, selection)
    by_kind: dict[tuple[str, str], list[WatchedKind]] = {}
    for each in watched:
        by_kind.setdefault((each.group, each.kind), []).append(each)
    for kind in cluster.listable:
        scopes = by_kind.get((kind.gvk.group, kind.gvk.kind))
        if scopes is None or kind in selection.kinds:
            continue
        try:
            path = kind.path(selection.namespace)
            await cluster.api.request("GET", path, params={"limit": "1"}, accept=ACCEPT_METADATA)
        except Forbidden:
            selection.forbidden_watched.append(kind)
        else:
            selection.kinds.append(kind)
            selection.watched[kind.gvk] = scopes
    selection.forbidden = [
        each for each in selection.forbidden if each not in selection.forbidden_watched
    ]
    return selection


async def _add_handled_kinds(cluster: ClusterView, selection: ResourceSelection) -> None:
    async def is_handled(resource: ApiResource) -> bool | None:
        try:
            async for _, item in objects(cluster.api, resource, selection.namespace):
                if _is_handled(item):
                    return True
        except Forbidden:
            return None
        except NotFound:
            return False
        return False

    kinds = cluster.custom_kinds
    found = list(zip(kinds, await concurrently(is_handled, kinds), strict=True))
    selection.kinds = [kind for kind, handled in found if handled]
    selection.forbidden = [kind for kind, handled in found if handled is None]


async def objects(
    api: Api, kind: ApiResource, namespace: str | None, *, accept: str = ACCEPT_METADATA
) -> AsyncIterator[tuple[ObjectRef, Json]]:
    """Yield the objects of a kind in a namespace, None for all. Raises ApiError."""
    async for page in list_pages(api, kind.path(namespace), accept=accept, outer_levels=2):
        for item in page.get("items") or ():
            yield ObjectRef.of_kind(kind.gvk, item), item


def _is_handled(item: Json) -> bool:
    fields = item["metadata"].get("managedFields") or ()
    return any(each.get("manager") == FIELD_MANAGER for each in fields)


async def selected(
    cluster: ClusterView, selection: ResourceSelection
) -> list[tuple[ObjectRef, Json]]:
    """Return all chosen resources, by kind, namespace and name.

    A resource that does not exist, and a kind that the user may not read, are added to the errors
    of the selection. Raises other ApiErrors.
    """
    kinds = selection.kinds
    return [each for kind in kinds async for each in _bodies(cluster, selection, kind)]


async def _bodies(
    cluster: ClusterView, selection: ResourceSelection, kind: ApiResource
) -> AsyncIterator[tuple[ObjectRef, Json]]:
    if (names := selection.names.get(kind.gvk)) is not None:
        for name in sorted(names):
            namespace = cluster.namespace if kind.namespaced else ""
            ref = ObjectRef(kind.gvk, namespace, name)
            try:
                body = await cluster.api.request("GET", kind.path(namespace, name))
            except (Forbidden, NotFound) as error:
                selection.errors.append(error)
            else:
                yield ref, body
        return
    try:
        async for ref, body in objects(cluster.api, kind, selection.namespace, accept=JSON):
            if selection.has(ref, body):
                yield ref, body
    except (Forbidden, NotFound) as error:
        selection.errors.append(error)
