"""Preview the resources of a project against a cluster; print diffs of YAML, or JSON."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from operator_runner.ansible.executor import AnsibleExecutor, open_launcher
from operator_runner.ansible.reserved_names import ReservedNamesLoader
from operator_runner.app.ansible_setup import rundirs_of, variable_names_of
from operator_runner.config.watches.selection import belongs_to, is_selected
from operator_runner.core.errors import ConfigError, Forbidden, NotFound
from operator_runner.core.model import Json, ObjectRef, Watch
from operator_runner.core.object_diff import ABSENT, ChangeType, ObjectDifference, changed_fields
from operator_runner.core.settings import Settings
from operator_runner.core.texts import printable
from operator_runner.kube.api import Api, list_pages
from operator_runner.kube.cluster import KubeCluster
from operator_runner.kube.discovery import ApiResource, Discovery
from operator_runner.kube.kind_names import find_watched, of_resources
from operator_runner.kube.session import Connection
from operator_runner.proxy.server import Proxy
from operator_runner.reconcile.preview import Preview, Previewer
from operator_runner.telemetry.runs.records import object_json
from operator_runner.tools import yaml_io
from operator_runner.tools.kubeconfig import Kubeconfig
from operator_runner.tools.resources.options import ResourceName
from operator_runner.tools.run_lines import with_short_paths

_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def with_relative_paths(preview: Preview, project: Path) -> Preview:
    """Return a preview whose paths of tasks are relative to the project, as in other commands."""
    folder = f"{project}/"

    def relative(text: str) -> str:
        return with_short_paths(text.replace(folder, ""))

    return replace(
        preview,
        unpreviewed=tuple(map(relative, preview.unpreviewed)),
        failure=relative(preview.failure),
    )


def preview_lines(preview: Preview) -> Iterator[str]:
    """Yield the diff of each object of a preview, and what could not be previewed."""
    for difference in preview.differences:
        yield from _diff_lines(difference)
    if preview.unpreviewed:
        yield f"Not previewed for {preview.ref}:"
        yield from (f"  {printable(each)}" for each in preview.unpreviewed)


def painted(line: str) -> str:
    """Return a line of a diff in its colour; click removes it where there is no terminal."""
    colour = _COLOURS.get(line[:1])
    return line if colour is None else click.style(line, fg=colour)


def summary(previews: Sequence[Preview]) -> str:
    """Return the counts: `2 of 3 resources with differences; objects: 1 created, 2 changed`.

    Failed runs are counted at the end.
    """
    differing = sum(bool(each.differences) for each in previews)
    noun = "resource" if len(previews) == 1 else "resources"
    failed = sum(bool(each.failure) for each in previews)
    end = f"; {failed} failed" if failed else ""
    if not differing:
        return f"No differences, {len(previews)} {noun}{end}"
    counts = Counter(each.change for one in previews for each in one.differences)
    parts = (f"{counts[change]} {change.value}" for change in ChangeType if counts[change])
    return (
        f"{differing} of {len(previews)} {noun} with differences; objects: {', '.join(parts)}{end}"
    )


def as_json(preview: Preview) -> Json:
    """Return a preview as `--output=json` prints it."""
    return {
        "resource": object_json(preview.ref),
        "objects": [_object(each) for each in preview.differences],
        "notPreviewed": list(preview.unpreviewed),
        "error": preview.failure or None,
    }


def _object(difference: ObjectDifference) -> Json:
    found = {**object_json(difference.ref), "change": difference.change.value}
    if difference.change is not ChangeType.CHANGED:
        return {**found, "before": difference.before, "after": difference.after}
    fields = [
        {
            "path": path,
            **({} if old is ABSENT else {"before": old}),
            **({} if new is ABSENT else {"after": new}),
        }
        for path, old, new in changed_fields(difference.before, difference.after)
    ]
    return {**found, "fields": fields}


def _diff_lines(difference: ObjectDifference) -> Iterator[str]:
    ref = difference.ref
    name = f"{ref.gvk.api_version} {ref}"
    before, after = (
        [] if side is None else yaml_io.dump(side).splitlines()
        for side in (difference.before, difference.after)
    )
    titles = (
        name if difference.before is not None else "(does not exist)",
        name if difference.after is not None else "(deleted)",
    )
    for line in difflib.unified_diff(before, after, *titles, lineterm=""):
        yield printable(line)


class _NoObserver:
    """Takes reports of the proxy; a dry run has none."""

    def __getattr__(self, name: str) -> Any:
        """Return a method that does nothing."""
        return lambda *_args, **_kwargs: None


@dataclass(frozen=True, slots=True)
class WatchedResource:
    """A resource to preview, and its watch."""

    body: Json
    watch: Watch


class ProjectPreview:
    """Finds the resources of a project and previews them. Every method raises ApiError."""

    def __init__(
        self,
        settings: Settings,
        watches: Sequence[Watch],
        connection: Connection,
        previewer: Previewer,
    ) -> None:
        """Use these parts; `open_project` makes them."""
        self._settings = settings
        self._watches = watches
        self._connection = connection
        self._previewer = previewer
        self._api = Api(connection)
        self._discovery = Discovery(self._api)
        self._cluster = KubeCluster(self._api, self._discovery)
        self._kinds: list[tuple[Watch, ApiResource]] = []
        self._served: list[ApiResource] = []
        self.missing: list[str] = []
        """Why kinds of the watches cannot be previewed: their CRDs are not installed."""
        self.forbidden: list[str] = []
        """Why resources are missing in `all`: the user may not list their kind."""

    async def load_kinds(self) -> None:
        """Find the kinds of the watches in the cluster, and all others. Raises ApiError."""
        self._served = await self._discovery.served()
        for watch in self._watches:
            try:
                self._kinds.append((watch, await self._discovery.resource(watch.gvk)))
            except NotFound as error:
                self.missing.append(str(error))

    async def find(self, name: ResourceName, namespace: str | None) -> WatchedResource:
        """Return a resource by name. Raises ConfigError if there is none, or no watch of its kind.

        `namespace` None is that of the kubeconfig.
        """
        kinds = self._named(name.kind)
        refs: list[ObjectRef] = []
        existing: list[WatchedResource] = []
        for watch, kind in kinds:
            place = (namespace or self._connection.namespace) if kind.namespaced else ""
            refs.append(ObjectRef(watch.gvk, place, name.name))
            if (body := await self._cluster.get(refs[-1])) is not None:
                existing.append(WatchedResource(body, watch))
        if not existing:
            raise ConfigError(f"{refs[0]} does not exist; name a resource of this cluster")
        for each in existing:
            if is_selected(each.body, each.watch):
                return each
        for each in existing:
            if each.body["metadata"].get("deletionTimestamp") and belongs_to(each.body, each.watch):
                return each
        raise ConfigError(f"{refs[0]} does not match selector or when of its watch")

    async def all(
        self, kind: str, namespace: str | None, *, everywhere: bool
    ) -> AsyncIterator[WatchedResource]:
        """Yield all resources that the watches select, or those of a kind unless it is empty.

        `namespace` None is that of the kubeconfig. `everywhere` means the namespaces of
        WATCH_NAMESPACE, or all without it. Kinds that the user may not list are left out and added
        to `forbidden`. Raises ConfigError if no watch has the kind.
        """
        one = namespace or self._connection.namespace
        chosen = self._settings.namespaces or ("",) if everywhere else (one,)
        for watch, resource in self._named(kind) if kind else self._kinds:
            for place in chosen if resource.namespaced else ("",):
                try:
                    async for body in self._bodies(watch, resource, place):
                        yield WatchedResource(body, watch)
                except Forbidden as error:
                    self.forbidden.append(
                        f"{error}; grant the permission to list {resource.plural}, or run diff in "
                        "a Pod of the operator"
                    )

    async def _bodies(
        self, watch: Watch, resource: ApiResource, namespace: str
    ) -> AsyncIterator[Json]:
        """Yield the resources that a watch selects in a namespace."""
        async for page in list_pages(self._api, resource.path(namespace), outer_levels=2):
            for item in page.get("items") or ():
                gvk = watch.gvk
                body = {"apiVersion": gvk.api_version, "kind": gvk.kind, **item}
                if is_selected(body, watch):
                    yield body

    def _named(self, kind: str) -> list[tuple[Watch, ApiResource]]:
        """Return the watches of a kind as a user names it. Raises ConfigError if there is none."""
        kinds, file = [watch.gvk for watch in self._watches], str(self._settings.watches_file)
        try:
            gvks = find_watched(kind, of_resources(self._served), kinds, file)
        except ConfigError as error:
            raise ConfigError("; ".join([*error.problems, *self.missing])) from error
        return [(watch, each) for watch, each in self._kinds if each.gvk in gvks]

    async def preview(self, resource: WatchedResource, limit: timedelta) -> Preview:
        """Return what a run of the resource would change; `limit` is as in `Previewer`."""
        return await self._previewer.preview(resource.body, resource.watch, limit=limit)


@asynccontextmanager
async def open_project(
    settings: Settings, watches: Sequence[Watch], kubeconfig: Kubeconfig
) -> AsyncIterator[ProjectPreview]:
    """Connect to the cluster and load Ansible. Raises ApiError and ConfigError.

    Work dir and proxy port of the settings must not be those of a running operator.
    """
    async with AsyncExitStack() as stack:
        connection = await kubeconfig.connect()
        stack.push_async_callback(connection.close)
        names = ReservedNamesLoader(settings.ansible, [watch.content.path for watch in watches])
        stack.push_async_callback(names.close)
        names.start()
        rundirs = rundirs_of(settings, watches)
        launcher = await stack.enter_async_context(
            open_launcher(settings.executor, settings.ansible)
        )
        proxy = Proxy(
            connection,
            settings.proxy,
            _NoObserver(),
            Discovery(Api(connection)),
            rundirs.shared,
            inject_owner_ref=settings.inject_owner_ref,
        )
        await proxy.start()
        stack.push_async_callback(proxy.stop)
        executor = AnsibleExecutor(launcher, rundirs, settings.ansible)
        variables = variable_names_of(settings, names)
        previewer = Previewer(proxy, executor, variables, settings.ansible)
        project = ProjectPreview(settings, watches, connection, previewer)
        await project.load_kinds()
        yield project
