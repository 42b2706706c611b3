"""Command `operator-runner undeploy`: delete an operator, keep custom resources and their objects.

The objects of an operator are deleted in order, and what is kept is reported.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from operator_runner.core.errors import ConfigError, NotFound
from operator_runner.core.model import GVK, Json, ObjectRef
from operator_runner.kube.certificate_sources import SECRET_KEYS
from operator_runner.kube.discovery import ApiResource
from operator_runner.tools.kubeconfig import Kubeconfig, kubeconfig_options
from operator_runner.tools.resources.cluster import ClusterView, concurrently, open_cluster
from operator_runner.tools.resources.listing import objects
from operator_runner.tools.yaml_io import read_objects, select_objects

_KUSTOMIZATIONS = ("kustomization.yaml", "kustomization.yml", "Kustomization")
_CRD, _NAMESPACE, _WORKLOAD = "CustomResourceDefinition", "Namespace", "Deployment"
_SECRET = GVK("", "v1", "Secret")


@dataclass(frozen=True, slots=True)
class RemovalPlan:
    """The objects of an installation, grouped by deletion order."""

    crds: tuple[ObjectRef, ...]
    """Kept by default: deleting a CRD deletes all resources of its kind."""
    workloads: tuple[ObjectRef, ...]
    """Deleted first. The rest follows when their Pods are gone: runs need RBAC until they end."""
    rest: tuple[ObjectRef, ...]
    made: tuple[ObjectRef, ...]
    """Secrets that the operator may have created: webhook certificates, by their Services."""
    namespaces: tuple[ObjectRef, ...]
    """Deleted last, and only if they contain nothing else."""


def plan_for(objects: Sequence[ObjectRef]) -> RemovalPlan:
    """Return the plan for objects in creation order; the rest is deleted in reverse order."""
    special = {_CRD, _NAMESPACE, _WORKLOAD}
    return RemovalPlan(
        crds=_of_kind(objects, _CRD),
        workloads=_of_kind(objects, _WORKLOAD),
        rest=tuple(ref for ref in reversed(objects) if ref.gvk.kind not in special),
        made=tuple(
            ObjectRef(_SECRET, ref.namespace, f"{ref.name}-certificate")
            for ref in _of_kind(objects, "Service")
        ),
        namespaces=_of_kind(objects, _NAMESPACE),
    )


def _of_kind(objects: Sequence[ObjectRef], kind: str) -> tuple[ObjectRef, ...]:
    return tuple(ref for ref in objects if ref.gvk.kind == kind)


_MAX_LISTED = 20
"""Maximum lines of a list; further ones are counted."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A custom resource, and the objects in namespaces that it owns."""

    ref: ObjectRef
    uid: str
    has_finalizers: bool = False
    owned: tuple[ObjectRef, ...] = ()


@dataclass(frozen=True, slots=True)
class Definition:
    """An installed CRD and the resources of its kind."""

    name: str
    """PLURAL.GROUP"""
    resources: tuple[Resource, ...]


def deletion_lines(definitions: Sequence[Definition]) -> Iterator[str]:
    """Yield the resources that are deleted with the CRDs, with the objects that they own."""
    for definition in definitions:
        if not definition.resources:
            yield f"CRD {definition.name} will be deleted; it has no resources."
            continue
        yield f"CRD {definition.name} will be deleted with these resources and their dependents:"
        yield from _shown(
            [
                f"  {one.ref}: {', '.join(map(str, one.owned)) or 'no objects'}"
                for one in definition.resources
            ]
        )
        yield f"Total: {_count(len(definition.resources), 'resource')}."


def remaining_lines(definitions: Sequence[Definition]) -> Iterator[str]:
    """Yield what is kept, and which of it needs an operator."""
    for definition in definitions:
        if definition.resources:
            yield (
                f"Kept: CRD {definition.name} and {_count(len(definition.resources), 'resource')}."
            )
        if commands := list(finalizer_commands([definition])):
            yield (
                "These resources have a finalizer that needs the operator. Deploy it again to"
                " delete them, or remove their finalizers to skip the cleanup:"
            )
            yield from commands


def finalizer_commands(definitions: Sequence[Definition]) -> Iterator[str]:
    """Yield the commands that remove the finalizers of remaining resources."""
    for definition in definitions:
        held = [one for one in definition.resources if one.has_finalizers]
        yield from _shown([_remove_finalizers(definition.name, one.ref) for one in held])


def _remove_finalizers(crd: str, ref: ObjectRef) -> str:
    where = f" --namespace={ref.namespace}" if ref.namespace else ""
    patch = '{"metadata":{"finalizers":null}}'
    return f"  kubectl patch {crd} {ref.name}{where} --type=merge --patch='{patch}'"


def _shown(lines: list[str]) -> Iterator[str]:
    yield from lines[:_MAX_LISTED]
    if len(lines) > _MAX_LISTED:
        yield f"  and {len(lines) - _MAX_LISTED} more"


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


_IGNORED_KINDS = {
    "Event",
    "Lease",
    "Endpoints",
    "EndpointSlice",
    "PodMetrics",
    "ControllerRevision",
}
"""Kinds of objects that controllers create and delete, or that belong to the operator."""
_DEFAULT_OBJECTS = {
    ("ServiceAccount", "default"),
    ("ConfigMap", "kube-root-ca.crt"),
    ("ConfigMap", "openshift-service-ca.crt"),
}
"""Kinds and names of objects that every namespace has."""


_POLL_SECONDS = 0.5
_MAX_LINES = 5


class Removal:
    """One undeployment. Every method raises ApiError."""

    def __init__(self, cluster: ClusterView, timeout: float) -> None:
        """`timeout` is in seconds, for each deletion; nothing is sent yet."""
        self._cluster = cluster
        self._timeout = timeout

    async def definitions(self, crds: Sequence[ObjectRef]) -> list[Definition]:
        """Return the installed CRDs with their resources."""
        found = [await self._send("GET", ref) for ref in crds]
        return [await self._definition(crd) for crd in found if crd is not None]

    async def with_owned(self, definitions: Sequence[Definition]) -> list[Definition]:
        """Return the definitions with the objects that their resources own."""
        namespaces = {one.ref.namespace for each in definitions for one in each.resources}
        owned: defaultdict[str, list[ObjectRef]] = defaultdict(list)
        for namespace in [None] if "" in namespaces else sorted(namespaces):
            for ref, metadata in await self._objects(namespace):
                for owner in metadata.get("ownerReferences") or ():
                    owned[owner["uid"]].append(ref)
        return [
            Definition(
                each.name,
                tuple(replace(one, owned=tuple(owned[one.uid])) for one in each.resources),
            )
            for each in definitions
        ]

    async def remove(self, plan: RemovalPlan, *, with_crds: bool) -> None:
        """Delete the objects of the plan. Raises ConfigError after a timeout."""
        if with_crds:
            # First, while the operator is running and can remove finalizers.
            await self._delete_crds(plan.crds)
        for ref in plan.workloads:
            await self._delete(ref, propagation="Foreground")
        if await self._remaining(plan.workloads):
            names = ", ".join(map(str, plan.workloads))
            raise ConfigError(f"{names}: Pods still running after {self._timeout:g} s; try again")
        for ref in plan.rest:
            await self._delete(ref)
        for ref in plan.made:
            secret = await self._send("GET", ref)
            # A Secret of another creator is kept.
            if secret is not None and set(SECRET_KEYS) <= set(secret.get("data") or ()):
                await self._delete(ref)
        for ref in plan.namespaces:
            await self._delete_namespace(ref)

    async def _delete_crds(self, crds: Sequence[ObjectRef]) -> None:
        """Delete the resources, then the CRDs.

        The garbage collector cannot look up owners of a deleted kind; if it missed a deletion, it
        would never delete the owned objects.
        """
        definitions = await self.with_owned(await self.definitions(crds))
        resources = [one for each in definitions for one in each.resources]
        for one in resources:
            await self._send("DELETE", one.ref, propagationPolicy="Background")
        if not await self._remaining([one.ref for one in resources]):
            owned = [ref for one in resources for ref in one.owned]
            if left := await self._remaining(owned, also_deleted=True):
                raise ConfigError(
                    "the resources are deleted, but the garbage collector has not deleted all"
                    f" objects that they owned within {self._timeout:g} s; the operator and the"
                    " CRDs are still deployed. Delete these objects, then try again:"
                    f" {', '.join(map(str, left))}"
                )
            for ref in crds:
                await self._delete(ref)
            if not await self._remaining(crds):
                return
        message = (
            f"resources of {', '.join(ref.name for ref in crds)} not deleted within"
            f" {self._timeout:g} s; the operator is still deployed. See its log for the cause, or"
            " remove the finalizers to skip the cleanup:"
        )
        commands = finalizer_commands(await self.definitions(crds))
        raise ConfigError("\n".join([message, *commands]))

    async def _delete_namespace(self, ref: ObjectRef) -> None:
        """Delete a namespace that has only default objects and some that are being deleted."""
        found = {
            each
            for each, metadata in await self._objects(ref.name)
            if "deletionTimestamp" not in metadata
            and each.gvk.kind not in _IGNORED_KINDS
            and (each.gvk.kind, each.name) not in _DEFAULT_OBJECTS
        }
        if not found:
            await self._delete(ref)
            return
        names = ", ".join(f"{one.gvk.kind} {one.name}" for one in sorted(found)[:_MAX_LINES])
        more = f" and {len(found) - _MAX_LINES} more" if len(found) > _MAX_LINES else ""
        click.echo(f"{ref} kept, because it contains {names}{more}")

    async def _delete(self, ref: ObjectRef, *, propagation: str = "Background") -> None:
        """Delete an object, if it and its kind exist."""
        deleted = await self._send("DELETE", ref, propagationPolicy=propagation)
        click.echo(f"{ref} {'not found' if deleted is None else 'deleted'}")

    async def _remaining(
        self, refs: Sequence[ObjectRef], *, also_deleted: bool = False
    ) -> list[ObjectRef]:
        """Wait until no object exists; return those that do after the timeout.

        With `also_deleted`, an object whose deletion was requested counts as deleted.
        """

        async def exists(ref: ObjectRef) -> bool:
            found = await self._send("GET", ref)
            is_deleted = also_deleted and found and "deletionTimestamp" in found["metadata"]
            return found is not None and not is_deleted

        deadline = time.monotonic() + self._timeout
        while remaining := [ref for ref in refs if await exists(ref)]:
            if time.monotonic() > deadline:
                return remaining
            refs = remaining
            await asyncio.sleep(_POLL_SECONDS)
        return []

    async def _send(self, method: str, ref: ObjectRef, **params: str) -> Json | None:
        """Return the response; None if the object or its kind does not exist."""
        kind = next((each for each in self._cluster.served if each.gvk == ref.gvk), None)
        if kind is None:
            return None
        try:
            path = kind.path(ref.namespace, ref.name)
            return await self._cluster.api.request(method, path, params=params)
        except NotFound:
            return None

    async def _objects(self, namespace: str | None) -> list[tuple[ObjectRef, Json]]:
        """Return reference and metadata of all objects in a namespace; None: in all."""

        async def listed(kind: ApiResource) -> list[tuple[ObjectRef, Json]]:
            try:
                return await self._list(kind, namespace)
            except NotFound:
                return []  # its CRD has been deleted

        kinds = (kind for kind in self._cluster.listable if kind.namespaced)
        return [each for found in await concurrently(listed, kinds) for each in found]

    async def _definition(self, crd: Json) -> Definition:
        spec = crd["spec"]
        served = [one for one in spec["versions"] if one["served"]]
        # Objects stored in the storage version need no conversion to be listed.
        version = next((one for one in served if one["storage"]), served[0])["name"]
        gvk = GVK(spec["group"], version, spec["names"]["kind"])
        kind = ApiResource(gvk, spec["names"]["plural"], spec["scope"] == "Namespaced")
        resources = (
            Resource(ref, metadata["uid"], bool(metadata.get("finalizers")))
            for ref, metadata in await self._list(kind, None)
        )
        return Definition(crd["metadata"]["name"], tuple(resources))

    async def _list(self, kind: ApiResource, namespace: str | None) -> list[tuple[ObjectRef, Json]]:
        """Return reference and metadata of all objects of a kind; None: of all namespaces."""
        found = objects(self._cluster.api, kind, namespace)
        return [(ref, item["metadata"]) async for ref, item in found]


@click.command()
@click.argument(
    "path", default="config/default", type=click.Path(path_type=Path, exists=True, allow_dash=True)
)
@click.option("--with-crds", is_flag=True, help="Delete the CRDs too, with all their resources.")
@click.option("--yes", is_flag=True, help="Skip the confirmation of --with-crds.")
@click.option(
    "--kustomize",
    default="",
    help="Command that renders PATH if it has a kustomization.  [default: kubectl kustomize]",
)
@kubeconfig_options
@click.option(
    "--timeout",
    "timeout_seconds",
    default=120.0,
    show_default=True,
    type=click.FloatRange(min=1),
    help="Seconds to wait for the deletion of Pods and resources.",
)
def undeploy(
    path: Path,
    kustomize: str,
    kubeconfig: Kubeconfig,
    *,
    with_crds: bool,
    yes: bool,
    timeout_seconds: float,
) -> None:
    """Delete the objects in the manifests of PATH, except CRDs.

    A namespace is deleted if it contains nothing else.
    """
    plan = plan_for(_objects(path, kustomize))

    async def run() -> None:
        async with open_cluster(kubeconfig, None) as cluster:
            removal = Removal(cluster, timeout_seconds)
            definitions = await removal.definitions(plan.crds)
            if with_crds:
                server = cluster.api.connection.server
                _ask(await removal.with_owned(definitions), server, sure=yes)
            await removal.remove(plan, with_crds=with_crds)
        for line in () if with_crds else remaining_lines(definitions):
            click.echo(line)

    asyncio.run(run())


def _ask(definitions: list[Definition], server: str, *, sure: bool) -> None:
    """Print the objects to delete and ask for confirmation. Raises ConfigError if it is denied."""
    for line in deletion_lines(definitions):
        click.echo(line)
    if sure or not definitions:
        return
    if not sys.stdin.isatty():
        raise ConfigError(
            "--with-crds needs a confirmation, but there is no terminal; nothing was deleted. Add"
            " --yes in scripts"
        )
    if not click.confirm(f"Delete all of this on {server}?"):
        raise ConfigError("nothing was deleted")


def _objects(path: Path, command: str) -> list[ObjectRef]:
    """Return the objects of a file, of a directory's files, or of a rendered kustomization.

    Raises ConfigError if there are none.
    """
    bodies: list[Json]
    if path.is_dir() and any((path / name).exists() for name in _KUSTOMIZATIONS):
        # The image of the operator does not have what it imports.
        from operator_runner.tools import kustomize  # noqa: PLC0415

        bodies = [*select_objects(kustomize.render(path, command, os.environ), str(path))]
    else:
        bodies = read_objects([path])
    if not bodies:
        raise ConfigError(
            f"{path}: no manifests found; name their file or directory, or a kustomization"
        )
    return [ObjectRef.of(body) for body in bodies]
