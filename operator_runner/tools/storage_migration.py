"""Command `operator-runner migrate-storage`: rewrite stored objects in their storage version.

Only metadata is read, and only a precondition is sent: the API server reads the object, converts
it, and writes it if its bytes in the storage version differ from the stored ones. Therefore no
field can be lost, and a migration that was interrupted is begun again without harm.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import click

from operator_runner.core.async_tasks import end_tasks
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
from operator_runner.kube import api
from operator_runner.kube.api import FIELD_MANAGER, MERGE_PATCH, METADATA_LIST, Api
from operator_runner.kube.discovery import Discovery
from operator_runner.tools.kubeconfig import Kubeconfig, kubeconfig_options

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_PAGE = 100
_CONCURRENCY = 8
"""Concurrent writes: enough to hide the latency of a conversion webhook."""
_MAX_ATTEMPTS = 5
_MAX_FAILURES = 20
"""Failures that are listed: while a webhook is down, all have the same message."""
_LINE_INTERVAL_SECONDS = 5.0
_RETRY_DELAYS_SECONDS = (1.0, 2.0, 4.0, 8.0)
"""Delays between attempts while the API server is unavailable, such as during its upgrade."""
_UNAVAILABLE = frozenset({0, 429, 503, 504})
"""Statuses to retry, 0 for no response; a failed conversion is a 500, which is not retried."""

_T = TypeVar("_T")


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
@click.option("--dry-run", is_flag=True, help="Send each write with dryRun=All.")
def migrate_storage(
    crds: tuple[str, ...], watches_file: Path, kubeconfig: Kubeconfig, dry_run: bool
) -> None:
    """Rewrite all objects of CRDs in their storage version.

    A CRD is named PLURAL.GROUP. Its older versions can be removed afterwards. An interrupted
    migration can be run again.
    """
    try:
        gvks = () if crds else _watched(watches_file)
        sys.exit(asyncio.run(_migrate(crds, gvks, kubeconfig, dry_run=dry_run)))
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


async def _migrate(
    names: Sequence[str], gvks: Sequence[GVK], kubeconfig: Kubeconfig, *, dry_run: bool
) -> int:
    connection = await kubeconfig.connect()
    try:
        api = Api(connection)
        discovery = Discovery(api)
        found = [await discovery.resource(gvk) for gvk in gvks]
        of_watches = [f"{resource.plural}.{resource.gvk.group}" for resource in found]
        are_complete = [
            await _migrate_crd(api, name, dry_run=dry_run)
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
        """Versions to try for a list, in order.

        An object that cannot be converted fails the list in the storage version; listing the
        version that it is stored in needs no conversion.
        """
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


class RewriteResult(Enum):
    """Result of rewriting one object; the value is shown to users."""

    REWRITTEN = "rewritten"
    CURRENT = "already current"
    SUPERSEDED = "changed or deleted meanwhile"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ObjectPage:
    """Metadata of some objects.

    `continue_token` is empty on the last page; `left` is the estimated number of remaining objects.
    """

    items: tuple[Json, ...]
    continue_token: str
    left: int


class StoredObjects:
    """The stored objects of one CRD."""

    def __init__(self, api: Api, target: MigrationTarget, *, dry_run: bool) -> None:
        """Send writes with dryRun=All if `dry_run`."""
        self._api = api
        self._target = target
        self._params = {"fieldManager": FIELD_MANAGER} | ({"dryRun": "All"} if dry_run else {})

    async def page(self, continue_token: str) -> ObjectPage:
        """Return the page at a continue token, or the first page for an empty token.

        Raises ApiError if no served version can be listed.
        """
        first: ApiError | None = None
        for version in self._target.readable:
            try:
                return await with_retries(partial(self._list, version, continue_token))
            except ApiError as error:
                if error.status < 500:  # noqa: PLR2004
                    raise
                first = first or error
        assert first is not None
        raise first

    async def rewrite(self, metadata: Json) -> RewriteResult:
        """Rewrite an object in the storage version, unless it has changed since it was listed.

        A later write has stored it in that version already. Raises ApiError if the API server
        rejects the write, for example because the object cannot be converted.
        """
        path = self._target.path(
            self._target.storage, metadata.get("namespace", ""), metadata["name"]
        )
        listed = metadata["resourceVersion"]
        body = {"metadata": {"uid": metadata["uid"], "resourceVersion": listed}}
        try:
            answer = await with_retries(
                lambda: self._api.request(
                    "PATCH", path, params=self._params, body=body, content_type=MERGE_PATCH
                )
            )
        except (Conflict, NotFound):
            return RewriteResult.SUPERSEDED
        same = answer["metadata"]["resourceVersion"] == listed
        return RewriteResult.CURRENT if same else RewriteResult.REWRITTEN

    async def _list(self, version: str, continue_token: str) -> ObjectPage:
        path = self._target.path(version)
        list_at = partial(api.list_page, self._api, path, limit=_PAGE, accept=METADATA_LIST)
        try:
            answer = await list_at(continue_token)
        except Expired as error:
            # The token's revision is compacted. With the new token the list continues at the same
            # key; without one it starts again, and finished objects are found current.
            answer = await list_at(error.continue_token)
        return ObjectPage(
            tuple(item["metadata"] for item in answer["items"]),
            api.continue_token(answer),
            answer["metadata"].get("remainingItemCount") or 0,
        )


async def with_retries(send: Callable[[], Awaitable[_T]]) -> _T:
    """Retry a request while the API server is unavailable, for 15 s. Raises ApiError."""
    for delay in _RETRY_DELAYS_SECONDS:
        try:
            return await send()
        except Unavailable as error:
            if error.status not in _UNAVAILABLE:
                raise
        await asyncio.sleep(delay)
    return await send()


# The migration of a CRD ------------------------------------------------------------------


async def _migrate_crd(api: Api, name: str, *, dry_run: bool) -> bool:
    """Migrate the CRD `name`; return whether all of its objects were rewritten.

    Raises ConfigError if the CRD does not exist or is edited meanwhile, and ApiError if the API
    server rejects a request or remains unavailable.
    """
    target = MigrationTarget.of(await _crd(api, name))
    if target.is_done:
        click.echo(f"{name}: all objects are stored in {target.storage} already")
        return True
    stored = ", ".join(target.stored)
    click.echo(f"{name}: migrating from {stored} to {target.storage}")
    objects = StoredObjects(api, target, dry_run=dry_run)
    done: Counter[RewriteResult] = Counter()
    token, last = "", time.monotonic()
    while True:
        page = await objects.page(token)
        await _rewrite(objects, page, target, done)
        token = page.continue_token
        if not token:
            break
        if time.monotonic() - last >= _LINE_INTERVAL_SECONDS:
            last = time.monotonic()
            click.echo(f"  {done.total()} of {done.total() + page.left} objects")
    failed = done[RewriteResult.FAILED]
    if dry_run:
        tried = f"{done.total()} objects tried, {failed} refused; nothing was written"
        click.echo(f"{name}: {tried}")
        return not failed
    counts = ", ".join(f"{done[each]} {each.value}" for each in RewriteResult if done[each])
    click.echo(f"{name}: {done.total()} objects: {counts or 'nothing to rewrite'}")
    if failed:
        hint = f"status.storedVersions stays {stored}: repair these objects, then run again"
        click.echo(f"{name}: {hint}")
        return False
    await _finish(api, target)
    click.echo(f"{name}: all objects are stored in {target.storage}")
    return True


async def _rewrite(
    objects: StoredObjects, page: ObjectPage, target: MigrationTarget, done: Counter[RewriteResult]
) -> None:
    """Rewrite the objects of a page concurrently. Raises ApiError without a response."""
    left = iter(page.items)

    async def work() -> None:
        for metadata in left:
            try:
                done[await objects.rewrite(metadata)] += 1
            except ApiError as error:
                if error.status == 0:
                    raise
                done[RewriteResult.FAILED] += 1
                path = "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
                if done[RewriteResult.FAILED] <= _MAX_FAILURES:
                    click.echo(f"  {target.plural} {path}: {error}")
                elif done[RewriteResult.FAILED] == _MAX_FAILURES + 1:
                    click.echo("  further failures are counted, not listed")

    workers = [asyncio.create_task(work()) for _ in range(_CONCURRENCY)]
    try:
        await asyncio.gather(*workers)
    finally:
        await end_tasks(workers)


async def _crd(api: Api, name: str) -> Json:
    try:
        return await with_retries(lambda: api.request("GET", f"{_CRDS}/{name}"))
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
        patch = partial(api.request, "PATCH", path, body=body, content_type=MERGE_PATCH)
        try:
            await with_retries(patch)
        except Conflict:
            continue
        return
    raise ConfigError(
        f"{target.name}: status.storedVersions could not be written because of conflicts; find "
        "the other writer with `kubectl get crd --show-managed-fields --output=yaml`"
    )
