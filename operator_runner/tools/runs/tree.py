"""Command `operator-runner tree KIND/NAME`: objects below the resource that owns them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from operator_runner.core.errors import ApiError, Forbidden, NotFound, Unavailable
from operator_runner.core.model import GVK, PART_OF, Json, ObjectRef, uid_of
from operator_runner.kube.discovery import ApiResource
from operator_runner.proxy.ownership import PRIMARY_ANNOTATION, PRIMARY_TYPE_ANNOTATION
from operator_runner.proxy.request_info import RequestInfo
from operator_runner.reconcile.annotations import PRUNE_ANNOTATION
from operator_runner.reconcile.conditions import conditions_by_type
from operator_runner.tools.kubeconfig import Kubeconfig
from operator_runner.tools.operator_api.discovery import Operators
from operator_runner.tools.resources.cluster import (
    ClusterView,
    NamedResource,
    concurrently,
    kind_name,
    open_cluster,
)
from operator_runner.tools.resources.options import (
    NameType,
    ResourceName,
    cluster_options,
    complete,
    list_output_option,
    work_dir_option,
)
from operator_runner.tools.resources.output import (
    OutputFormat,
    print_data,
    print_document,
    print_table,
)
from operator_runner.tools.run_lines import age


@dataclass(slots=True)
class TreeNode:
    """An object with those that belong to it, ordered by kind, namespace and name."""

    ref: ObjectRef
    metadata: Json
    children: list[TreeNode] = field(default_factory=list)

    @property
    def all(self) -> list[TreeNode]:
        """The node and all nodes below it."""
        return [self, *(below for child in self.children for below in child.all)]


@dataclass(frozen=True, slots=True)
class LastWriter:
    """The field manager that last wrote an object, apart from its status."""

    manager: str
    at: datetime | None


def tree_of(root: Json, ref: ObjectRef, objects: Mapping[ObjectRef, Json]) -> TreeNode:
    """Return the tree of a resource; `objects` are all that may belong to it, by reference.

    An object belongs to its owners (`metadata.ownerReferences`), and to the resource that its
    annotations name, as those in other namespaces do.
    """
    by_owner: dict[str, list[ObjectRef]] = {}
    for each, body in objects.items():
        owners = {str(owner.get("uid")) for owner in body["metadata"].get("ownerReferences") or ()}
        if _names(body["metadata"], ref):
            owners.add(uid_of(root))
        for owner in owners:
            by_owner.setdefault(owner, []).append(each)
    seen = {uid_of(root)}

    def node(ref: ObjectRef, body: Json) -> TreeNode:
        # Each object is in the tree once, even if its owners form a circle.
        found = TreeNode(ref, body["metadata"])
        for each in sorted(by_owner.get(uid_of(body), ()), key=_order):
            if (uid := uid_of(objects[each])) not in seen:
                seen.add(uid)
                found.children.append(node(each, objects[each]))
        return found

    return node(ref, root)


def _order(ref: ObjectRef) -> tuple[str, str, str]:
    return ref.gvk.kind, ref.namespace, ref.name


def _names(metadata: Json, ref: ObjectRef) -> bool:
    """Return whether the annotations of an object name a resource as its owner."""
    annotations = metadata.get("annotations") or {}
    path = f"{ref.namespace}/{ref.name}" if ref.namespace else ref.name
    kind = annotations.get(PRIMARY_TYPE_ANNOTATION)
    return annotations.get(PRIMARY_ANNOTATION) == path and kind == ref.gvk.kind_and_group


def last_writer(metadata: Json) -> LastWriter:
    """Return who last wrote the object, by its managedFields; empty if they are missing."""
    entries = [
        each
        for each in metadata.get("managedFields") or ()
        if each.get("manager") and not each.get("subresource")
    ]
    newest = max(entries, key=lambda each: str(each.get("time") or ""), default=None)
    if newest is None:
        return LastWriter("", None)
    try:
        at = datetime.fromisoformat(newest["time"])
    except (KeyError, TypeError, ValueError):
        at = None
    return LastWriter(str(newest["manager"]), at)


_PYTHON_CLIENT = "OpenAPI-Generator"
"""Field manager of tasks that do not apply."""
_TIME_UNIT = timedelta(seconds=1)
"""Times of managedFields are whole seconds."""


@dataclass(frozen=True, slots=True)
class RunsOfTree:
    """The runs of the resource, and what the last of them wrote or read by name.

    `touched` is None if that is unknown: no operator answers, or the run failed.
    """

    runs: Sequence[Json] = ()
    touched: frozenset[tuple[str, ...]] | None = None

    def writer(self, ref: ObjectRef, last: LastWriter) -> str:
        """Return the run that wrote last, else the name of the field manager."""
        if last.at is None or last.manager not in {_PYTHON_CLIENT, ref.gvk.kind_and_group.lower()}:
            return last.manager
        for run in self.runs:
            ended = run.get("finished")
            if datetime.fromisoformat(run["started"]) - _TIME_UNIT < last.at and (
                ended is None or last.at <= datetime.fromisoformat(ended)
            ):
                return f"operator-runner, run {run['id']}"
        return last.manager if last.manager == _PYTHON_CLIENT else "operator-runner, earlier run"

    def has(self, ref: ObjectRef, plural: str) -> bool:
        """Return whether the last run wrote an object or read it by name, or that is unknown."""
        place = (ref.namespace, ref.name)
        group, kind = ref.gvk.group, ref.gvk.kind
        return self.touched is None or not self.touched.isdisjoint(
            {(group, kind, *place), (group, plural, *place)}
        )


def touched_by(run: Json) -> frozenset[tuple[str, ...]] | None:
    """Return group, kind or plural, namespace and name of what a run wrote or read by name.

    None for a run that failed, or whose record is incomplete.
    """
    dropped = run.get("dropped") or {}
    if run.get("outcome") != "succeeded" or dropped.keys() & {"requests", "writes"}:
        return None
    written = [each["object"] for each in run.get("writes") or ()]
    refs = [ObjectRef.of({"metadata": each, **each}) for each in written]
    infos = [RequestInfo.parse(each["path"]) for each in run.get("requests") or ()]
    return frozenset(
        [
            *((ref.gvk.group, ref.gvk.kind, ref.namespace, ref.name) for ref in refs),
            *((each.group, each.resource, each.namespace, each.name) for each in infos if each),
        ]
    )


_POLL_SECONDS = 2.0
_DELETED = "deleted"
_NOT_TOUCHED = "not in the last run"
_HEADER = ("NAME", "READY", "LAST WRITTEN BY", "WRITTEN", "AGE")
_NOT_OWNED = {("", "Event"), ("events.k8s.io", "Event")}
"""Kinds, by group, with many objects that never have an owner."""


@click.command()
@click.argument("name", metavar="KIND/NAME", type=NameType())
@cluster_options
@click.option(
    "-A", "--all-namespaces", is_flag=True, help="Also search other namespaces and cluster-wide."
)
@list_output_option
@click.option(
    "-w", "--watch", is_flag=True, help="Print the tree again after each change until interrupted."
)
@work_dir_option
def tree(
    *,
    name: ResourceName,
    namespace: str | None,
    kubeconfig: Kubeconfig,
    all_namespaces: bool,
    output: OutputFormat,
    watch: bool,
    work_dir: Path | None,
) -> None:
    """Show the objects of a resource, and their readiness.

    Each has its last writer and the age of that write. Objects that the last run neither wrote nor
    read by name are marked, if the operator answers.

    KIND is spelled as for kubectl: wikis, wiki, a short name, wiki.apps.example.com.
    """
    where = _Where(namespace, work_dir, all_namespaces)
    complete(_tree(name, kubeconfig, where, output, watch=watch))


@dataclass(frozen=True, slots=True)
class _Where:
    """Where to search."""

    namespace: str | None
    work_dir: Path | None
    everywhere: bool


@dataclass(frozen=True, slots=True)
class _Found:
    """A tree with the readiness of its objects as a word, plurals of kinds, and runs."""

    root: TreeNode
    readiness: Mapping[ObjectRef, str]
    plurals: Mapping[GVK, str] = field(default_factory=dict)
    runs: RunsOfTree = RunsOfTree()

    def is_marked(self, node: TreeNode) -> bool:
        """Return whether the last run neither wrote an object of the resource nor read it."""
        is_own = any(node is each for each in self.root.children)
        return is_own and not self.runs.has(node.ref, self.plurals.get(node.ref.gvk, ""))


async def _tree(
    name: ResourceName, kubeconfig: Kubeconfig, where: _Where, output: OutputFormat, *, watch: bool
) -> None:
    async with open_cluster(kubeconfig, where.namespace) as cluster:
        target = cluster.find(*name)
        everywhere = where.everywhere or not target.ref.namespace
        search = _Search(cluster, None if everywhere else target.ref.namespace)
        shown: Json = {}
        found: _Found | None = None
        following = cluster.follow_operators(where.work_dir, pause=_POLL_SECONDS)
        async with following as operators_found:
            async for operators in operators_found:
                try:
                    found = await search.tree(target, operators)
                except NotFound:
                    if found is None:
                        raise
                    found = _Found(replace(found.root, children=[]), {target.ref: _DELETED})
                if search.skipped and not shown:
                    click.echo(
                        f"Warning: {len(search.skipped)} kinds could not be searched: "
                        f"{', '.join(sorted(search.skipped))}",
                        err=True,
                    )
                data = _data(found.root, found)
                if output.is_data and not watch:
                    print_data(data, output)
                elif data != shown:
                    if shown and output.is_table:
                        click.echo()
                    _print(found, output)
                shown = data
                if not watch:
                    return


def _print(found: _Found, output: OutputFormat) -> None:
    if output.is_data:
        print_document(_data(found.root, found), output)
        return
    if output is OutputFormat.NAME:
        for node in found.root.all:
            click.echo(node.ref.full_name)
        return
    is_wide = output is OutputFormat.WIDE
    header = (*_HEADER, "NAMESPACE", "API VERSION", "PRUNE") if is_wide else _HEADER
    rows = [_row(prefix, node, found, is_wide=is_wide) for prefix, node in _lines(found.root)]
    print_table(header, rows)


@dataclass(slots=True)
class _Search:
    """Reads all objects of a namespace, None for the whole cluster, and their readiness."""

    cluster: ClusterView
    namespace: str | None
    skipped: set[str] = field(default_factory=set)
    """Kinds that could not be listed."""

    async def tree(self, target: NamedResource, operators: Operators) -> _Found:
        """Return a resource with its objects, their readiness and runs. Raises ApiError."""
        body = await self.cluster.read(target)
        root = tree_of(body, target.ref, await self._objects())
        plurals = {each.gvk: each.plural for each in self.cluster.served}
        runs = await self._runs(operators, target.ref, uid_of(body))
        return _Found(root, await self._readiness(root), plurals, runs)

    async def _runs(self, operators: Operators, ref: ObjectRef, uid: str) -> RunsOfTree:
        """Return the runs of a resource, none without an operator."""
        from operator_runner.telemetry.runs.records import query_of  # noqa: PLC0415
        from operator_runner.tools.operator_api.run_history import (  # noqa: PLC0415
            read_records,
            regards,
        )
        from operator_runner.tools.runs.reading import find_run  # noqa: PLC0415

        listed = await read_records(operators, query_of(ref) | {"limit": "100"})
        found = [each for each in listed if regards(each["resource"], uid)]
        ended = next((each for each in found if "finished" in each), None)
        try:
            last = None if ended is None else (await find_run(operators, str(ended["id"])))[0]
        except ApiError:
            return RunsOfTree(found)
        return RunsOfTree(found, None if last is None else touched_by(last))

    async def _objects(self) -> dict[ObjectRef, Json]:
        """Return the metadata of all objects that can be listed. Raises ApiError."""
        kinds = [
            each
            for each in self.cluster.listable
            if (each.namespaced or self.namespace is None)
            and (each.gvk.group, each.gvk.kind) not in _NOT_OWNED
        ]
        lists = await concurrently(self._list, kinds)
        return {ref: item for found in lists for ref, item in found.items()}

    async def _list(self, kind: ApiResource) -> dict[ObjectRef, Json]:
        from operator_runner.tools.resources.listing import objects  # noqa: PLC0415 (slow import)

        found = objects(self.cluster.api, kind, self.namespace)
        try:
            return {ref: item async for ref, item in found}
        except (Forbidden, Unavailable):
            self.skipped.add(kind.plural)
        except NotFound:
            pass
        return {}

    async def _readiness(self, root: TreeNode) -> dict[ObjectRef, str]:
        """Return the readiness of the objects that have a status; others are not read."""
        kinds = {each.gvk: each for each in self.cluster.served}
        found: dict[ObjectRef, str] = {}

        async def read(ref: ObjectRef) -> None:
            path = kinds[ref.gvk].path(ref.namespace, ref.name)
            with suppress(Forbidden, NotFound):
                found[ref] = _readiness(ref, await self.cluster.api.request("GET", path))

        refs = (node.ref for node in root.all)
        await concurrently(read, (ref for ref in refs if "status" in kinds[ref.gvk].subresources))
        return found


def _readiness(ref: ObjectRef, body: Json) -> str:
    """Return the readiness of an object; that of a resource of operators is its last run's.

    It is a word, empty if the readiness is unknown.
    """
    from operator_runner.kube.object_readiness import Readiness, health_of  # noqa: PLC0415

    ready = health_of(ref.gvk, body).readiness
    if ready is not Readiness.UNKNOWN:
        return ready.value
    successful = conditions_by_type(body).get("Successful", {})
    of_run = {"True": Readiness.READY.value, "False": Readiness.NOT_READY.value}
    return of_run.get(str(successful.get("status")), "")


def _lines(root: TreeNode) -> Iterator[tuple[str, TreeNode]]:
    """Yield each node with the branches before its name."""
    yield "", root
    yield from _below(root, "")


def _below(node: TreeNode, indent: str) -> Iterator[tuple[str, TreeNode]]:
    for child in node.children:
        is_last = child is node.children[-1]
        yield f"{indent}{'└─ ' if is_last else '├─ '}", child
        yield from _below(child, f"{indent}{'   ' if is_last else '│  '}")


def _row(prefix: str, node: TreeNode, found: _Found, *, is_wide: bool) -> tuple[str, ...]:
    now = datetime.now(UTC)
    last = last_writer(node.metadata)
    writer = found.runs.writer(found.root.ref, last) or "-"
    if found.is_marked(node):
        writer += f" ({_NOT_TOUCHED})"
    row = (
        f"{prefix}{kind_name(node.ref.gvk)}/{node.ref.name}",
        found.readiness.get(node.ref) or "-",
        writer,
        "-" if last.at is None else age(now - last.at),
        age(now - datetime.fromisoformat(node.metadata["creationTimestamp"])),
    )
    if not is_wide:
        return row
    pruned = _prune_state(node.metadata) or "-"
    return (*row, node.ref.namespace or "-", node.ref.gvk.api_version, pruned)


def _prune_state(metadata: Json) -> str:
    """Return `member` for an object that `prune` may delete, `disabled` if a user forbids it."""
    if PART_OF not in (metadata.get("labels") or {}):
        return ""
    annotations = metadata.get("annotations") or {}
    return "disabled" if annotations.get(PRUNE_ANNOTATION) == "disabled" else "member"


def _data(node: TreeNode, found: _Found) -> Json:
    """Return the tree for `--output=json`."""
    writer = last_writer(node.metadata)
    data = {
        "apiVersion": node.ref.gvk.api_version,
        "kind": node.ref.gvk.kind,
        "namespace": node.ref.namespace,
        "name": node.ref.name,
        "uid": node.metadata.get("uid"),
        "readiness": found.readiness.get(node.ref, ""),
        "lastRun": _NOT_TOUCHED if found.is_marked(node) else "",
        "prune": _prune_state(node.metadata),
        "lastWriter": found.runs.writer(found.root.ref, writer),
        "lastWritten": writer.at.isoformat() if writer.at is not None else "",
        "children": [_data(child, found) for child in node.children],
    }
    return {name: value for name, value in data.items() if value}
