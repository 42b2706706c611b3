"""Command `operator-runner migrate-storage`: rewrite stored objects in their storage version.

Only metadata is read, and only a precondition is sent: the API server reads the object, converts
it, and writes it if its bytes in the storage version differ from the stored ones. Therefore no
field can be lost, and a migration that was interrupted is begun again without harm.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import click

from operator_runner.core.errors import (
    INTERRUPTED,
    ApiError,
    ConfigError,
    Conflict,
    Expired,
    NotFound,
    Unavailable,
)
from operator_runner.core.model import GVK, Json
from operator_runner.kube.api import FIELD_MANAGER, MERGE_PATCH, METADATA_LIST, Api, list_pages
from operator_runner.kube.discovery import Discovery
from operator_runner.tools.kubeconfig import Kubeconfig, kubeconfig_options

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_PAGE = 16
"""Objects of a list, which are rewritten at once: enough to hide the latency of a webhook."""
_MAX_ATTEMPTS = 5
_RETRY_DELAYS_SECONDS = (1.0, 2.0, 4.0, 8.0)
_TRANSIENT = frozenset({0, 410, 429, 503, 504})
"""Statuses to begin again after, 0 for no response; a failed conversion is a 500."""
REWRITTEN = "rewritten"
CURRENT = "already current"
SUPERSEDED = "changed or deleted meanwhile"
FAILED = "failed"


@click.command("migrate-storage")
@click.argument("crds", metavar="[CRD]...", nargs=-1)
@click.option(
    "--watches-file",
    default="./watches.yaml",
    show_default=True,
    type=click.Path(path_type=Path),
    help="Watches whose kinds are migrated if no CRD is named.",
)
@kubeconfig_options
def migrate_storage(crds: tuple[str, ...], watches_file: Path, kubeconfig: Kubeconfig) -> None:
    """Rewrite all objects of CRDs in their storage version.

    A CRD is named PLURAL.GROUP. Its older versions can be removed afterwards. An interrupted
    migration can be run again.
    """
    try:
        gvks = () if crds else _watched(watches_file)
        sys.exit(asyncio.run(_migrate(crds, gvks, kubeconfig)))
    except (ApiError, ConfigError) as error:
        raise click.ClickException(str(error)) from error
    except KeyboardInterrupt:
        click.echo("interrupted; run again to migrate the rest")
        sys.exit(INTERRUPTED)


def _watched(file: Path) -> Sequence[GVK]:
    from operator_runner.config.watches import load  # noqa: PLC0415 (a second; not for --help)

    try:
        watches = load(file, os.environ).watches
    except ConfigError as error:
        raise ConfigError(*error.problems, "Or name the CRDs: PLURAL.GROUP") from error
    return [watch.gvk for watch in watches]


async def _migrate(names: Sequence[str], gvks: Sequence[GVK], kubeconfig: Kubeconfig) -> int:
    connection = await kubeconfig.connect()
    try:
        api = Api(connection)
        discovery = Discovery(api)
        found = [await discovery.resource(gvk) for gvk in gvks]
        of_watches = [f"{resource.plural}.{resource.gvk.group}" for resource in found]
        are_complete = [
            await Migration(api, MigrationTarget.of(await _crd(api, name))).run()
            for name in dict.fromkeys([*names, *of_watches])
        ]
        return int(not all(are_complete))
    finally:
        await connection.close()


@dataclass(frozen=True, slots=True)
class MigrationTarget:
    """The fields of a CRD that a migration needs; an edit of its spec changes `generation`."""

    name: str
    uid: str
    generation: int
    group: str
    plural: str
    storage: str
    """Version that objects are written in."""
    stored: tuple[str, ...]
    """Versions that objects may be stored in: status.storedVersions."""
    served: tuple[str, ...]

    @classmethod
    def of(cls, crd: Json) -> MigrationTarget:
        """Read a CRD. Raises ConfigError if its storage version is not served."""
        metadata, spec = crd["metadata"], crd["spec"]
        storage = next(v["name"] for v in spec["versions"] if v["storage"])
        served = tuple(v["name"] for v in spec["versions"] if v["served"])
        if storage not in served:
            raise ConfigError(
                f"{metadata['name']}: storage version {storage} is not served; set `served: true` "
                f"for {storage} in the CRD"
            )
        return cls(
            name=metadata["name"],
            uid=metadata["uid"],
            generation=metadata["generation"],
            group=spec["group"],
            plural=spec["names"]["plural"],
            storage=storage,
            stored=tuple(crd.get("status", {}).get("storedVersions") or ()),
            served=served,
        )

    @property
    def is_done(self) -> bool:
        """Whether every object is stored in the storage version."""
        return self.stored == (self.storage,)

    @property
    def readable(self) -> tuple[str, ...]:
        """Versions to try for a list, in order."""
        return (self.storage, *(version for version in self.served if version != self.storage))

    def path(self, version: str, namespace: str = "", name: str = "") -> str:
        """Return the API path of all objects in a version, or of one object."""
        parts = [f"/apis/{self.group}/{version}"]
        if namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        if name:
            parts.append(quote(name, safe=":"))
        return "/".join(parts)


class Migration:
    """Rewrites the objects of one CRD, and reports what it does."""

    def __init__(self, api: Api, target: MigrationTarget) -> None:
        """Send nothing yet."""
        self._api = api
        self._target = target
        self._results: dict[str, str] = {}
        """Result of each object, by uid."""

    async def run(self) -> bool:
        """Rewrite all objects; return whether none failed.

        Raises ConfigError if the CRD is edited meanwhile, and ApiError if no version can be listed.
        """
        name, storage = self._target.name, self._target.storage
        if self._target.is_done:
            click.echo(f"{name}: all objects are stored in {storage} already")
            return True
        stored = ", ".join(self._target.stored)
        click.echo(f"{name}: migrating from {stored} to {storage}")
        await self._rewrite_all()
        counts = Counter(self._results.values())
        found = ", ".join(f"{number} {result}" for result, number in counts.items())
        click.echo(f"{name}: {counts.total()} objects: {found or 'nothing to rewrite'}")
        if FAILED in counts:
            hint = f"status.storedVersions stays {stored}: repair these objects, then run again"
            click.echo(f"{name}: {hint}")
            return False
        await _finish(self._api, self._target)
        click.echo(f"{name}: all objects are stored in {storage}")
        return True

    async def _rewrite_all(self) -> None:
        """Rewrite all objects; begin again while the API server is unavailable, for 15 s."""
        for delay in _RETRY_DELAYS_SECONDS:
            try:
                return await self._rewrite_listed()
            except (Expired, Unavailable) as error:
                if error.status not in _TRANSIENT:
                    raise
            await asyncio.sleep(delay)
        return await self._rewrite_listed()

    async def _rewrite_listed(self) -> None:
        """Rewrite what a list of the storage version has, or of the first version that works.

        An object that cannot be converted fails the list in the storage version; listing the
        version that it is stored in needs no conversion.
        """
        first: ApiError | None = None
        for version in self._target.readable:
            try:
                path = self._target.path(version)
                async for page in list_pages(self._api, path, limit=_PAGE, accept=METADATA_LIST):
                    await asyncio.gather(*(self._note(item["metadata"]) for item in page["items"]))
            except ApiError as error:
                if error.status < 500:  # noqa: PLR2004
                    raise
                first = first or error
            else:
                return
        assert first is not None
        raise first

    async def _note(self, metadata: Json) -> None:
        """Rewrite an object that has not been rewritten yet, and record the result."""
        uid = metadata["uid"]
        if uid in self._results:
            return
        try:
            self._results[uid] = await self.rewrite(metadata)
        except ApiError as error:
            if error.status in _TRANSIENT:
                raise
            self._results[uid] = FAILED
            place = "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
            click.echo(f"  {self._target.plural} {place}: {error}")

    async def rewrite(self, metadata: Json) -> str:
        """Rewrite an object in the storage version, unless it has changed since it was listed.

        A later write has stored it in that version already. Raises ApiError if the API server
        rejects the write, for example because the object cannot be converted.
        """
        path = self._target.path(
            self._target.storage, metadata.get("namespace", ""), metadata["name"]
        )
        listed = metadata["resourceVersion"]
        body = {"metadata": {"uid": metadata["uid"], "resourceVersion": listed}}
        params = {"fieldManager": FIELD_MANAGER}
        try:
            answer = await self._api.request(
                "PATCH", path, params=params, body=body, content_type=MERGE_PATCH
            )
        except (Conflict, NotFound):
            return SUPERSEDED
        return CURRENT if answer["metadata"]["resourceVersion"] == listed else REWRITTEN


async def _crd(api: Api, name: str) -> Json:
    try:
        return await api.request("GET", f"{_CRDS}/{name}")
    except NotFound as error:
        raise ConfigError(
            f"{name}: CRD not found; write PLURAL.GROUP, as listed by `kubectl get crd`"
        ) from error


async def _finish(api: Api, target: MigrationTarget) -> None:
    """Set status.storedVersions to the storage version. Raises ConfigError after an edit."""
    path = f"{_CRDS}/{target.name}/status"
    for _ in range(_MAX_ATTEMPTS):
        crd = await _crd(api, target.name)
        now = MigrationTarget.of(crd)
        if (now.uid, now.generation) != (target.uid, target.generation):
            raise ConfigError(
                f"{target.name}: the CRD was edited meanwhile, so status.storedVersions is "
                "unchanged; run the command again"
            )
        # Status writes of others conflict; the generation shows that nothing else has changed.
        body = {
            "metadata": {"resourceVersion": crd["metadata"]["resourceVersion"]},
            "status": {"storedVersions": [target.storage]},
        }
        try:
            await api.request("PATCH", path, body=body, content_type=MERGE_PATCH)
        except Conflict:
            continue
        return
    raise ConfigError(
        f"{target.name}: status.storedVersions could not be written because of conflicts; find "
        "the other writer with `kubectl get crd --show-managed-fields --output=yaml`"
    )
