"""Migrates one CRD: all of its objects, then the list of versions that they are stored in."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from operator_runner.core.async_tasks import end_tasks
from operator_runner.core.errors import ApiError, ConfigError, Conflict, NotFound
from operator_runner.core.model import Json
from operator_runner.kube.api import MERGE_PATCH, Api
from operator_runner.tools.storage_migration.objects import Objects, Page, Result, patiently
from operator_runner.tools.storage_migration.target import ANNOTATION, Place, Target, place_of

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_AT_ONCE = 8
"""Writes under way: enough to hide the time of a conversion webhook, few for an API server."""
_TRIES = 5


class End(Enum):
    """How the migration of a CRD ended; what is left to do after the last two is done next time."""

    DONE = "done"
    INCOMPLETE = "incomplete"
    INTERRUPTED = "interrupted"


@dataclass(slots=True)
class Tally:
    """How far a migration is. `before` were done by one that was interrupted."""

    before: int = 0
    results: Counter[Result] = field(default_factory=Counter)
    failed: int = 0

    @property
    def seen(self) -> int:
        """Objects that were looked at, now or before."""
        return self.before + self.results.total() + self.failed


class Report(Protocol):
    """Is told how a migration goes."""

    def began(self, target: Target, place: Place | None) -> None:
        """Take note of the CRD, and of the place where an interrupted migration goes on."""

    def nothing_to_do(self, target: Target) -> None:
        """Take note that all is stored in the storage version already."""

    def moved(self, tally: Tally, total: int) -> None:
        """Take note of how far it is; `total` is an estimate of all objects."""

    def failed(self, target: Target, metadata: Json, reason: str) -> None:
        """Take note of an object that was not rewritten."""

    def ended(self, target: Target, tally: Tally, end: End) -> None:
        """Take note of the end."""


class Migration:
    """Migrates CRDs of one cluster, one after the other."""

    def __init__(
        self, api: Api, report: Report, stopped: Callable[[], bool], *, dry_run: bool = False
    ) -> None:
        """Ask `stopped` between objects; with `dry_run`, have nothing written."""
        self._api = api
        self._report = report
        self._stopped = stopped
        self._dry_run = dry_run

    async def run(self, name: str) -> End:
        """Migrate the CRD `name`, or go on where an earlier migration of it was interrupted.

        Raises ConfigError if there is no such CRD, or if it is edited meanwhile, and ApiError
        where the API server refuses or stays away; its place is kept then.
        """
        crd = await self._crd(name)
        target = Target.of(crd)
        if target.is_done:
            self._report.nothing_to_do(target)
            return End.DONE
        place = None if self._dry_run else place_of(crd, target)
        self._report.began(target, place)
        tally = Tally(before=place.seen if place else 0)
        end = await self._all(target, place.following if place else "", tally)
        if end is End.DONE and not self._dry_run:
            await self._finish(target)
        self._report.ended(target, tally, end)
        return end

    async def _all(self, target: Target, following: str, tally: Tally) -> End:
        objects = Objects(self._api, target, dry_run=self._dry_run)
        while True:
            page = await objects.page(following)
            total = tally.seen + len(page.items) + page.left
            await self._rewrite(objects, page, target, tally, total)
            if self._stopped():
                return End.INTERRUPTED
            following = page.following
            if not following:
                return End.INCOMPLETE if tally.failed else End.DONE
            # A failure is tried anew next time, so the place stays before its page.
            if not tally.failed and not self._dry_run:
                await self._keep(target, following, tally.seen)

    async def _rewrite(
        self, objects: Objects, page: Page, target: Target, tally: Tally, total: int
    ) -> None:
        """Rewrite the objects of a page, several at once; raise ApiError if the server is away."""
        left = iter(page.items)

        async def work() -> None:
            for metadata in left:
                if self._stopped():
                    return
                try:
                    tally.results[await objects.rewrite(metadata)] += 1
                except ApiError as error:
                    if error.status == 0:
                        raise
                    tally.failed += 1
                    self._report.failed(target, metadata, str(error))
                self._report.moved(tally, total)

        workers = [asyncio.create_task(work()) for _ in range(_AT_ONCE)]
        try:
            await asyncio.gather(*workers)
        finally:
            await end_tasks(workers)

    async def _crd(self, name: str) -> Json:
        try:
            return await patiently(lambda: self._api.request("GET", f"{_CRDS}/{name}"))
        except NotFound as error:
            raise ConfigError(
                f"{name}: the cluster has no such CRD; name it as `kubectl get crd` does, "
                "PLURAL.GROUP"
            ) from error

    async def _keep(self, target: Target, following: str, seen: int) -> None:
        place = Place(target.uid, target.generation, following, seen)
        await self._patch(target.name, {"metadata": {"annotations": {ANNOTATION: place.text()}}})

    async def _finish(self, target: Target) -> None:
        """Write that no other version is stored any more, if the CRD is still the same."""
        await self._patch(target.name, {"metadata": {"annotations": {ANNOTATION: None}}})
        for _ in range(_TRIES):
            crd = await self._crd(target.name)
            now = Target.of(crd)
            if (now.uid, now.generation) != (target.uid, target.generation):
                raise ConfigError(
                    f"{target.name}: the CRD was edited meanwhile, so it is not known which "
                    "versions are stored; run the command again"
                )
            status = {"storedVersions": [target.storage]}
            version = crd["metadata"]["resourceVersion"]
            try:
                patch = {"metadata": {"resourceVersion": version}, "status": status}
                await self._patch(f"{target.name}/status", patch)
            except Conflict:
                continue
            return
        raise ConfigError(
            f"{target.name}: somebody writes the CRD all the time, so its storedVersions could "
            "not be written; find out who (`kubectl get crd --show-managed-fields`)"
        )

    async def _patch(self, name: str, patch: Json) -> Json:
        return await patiently(
            lambda: self._api.request(
                "PATCH", f"{_CRDS}/{name}", body=patch, content_type=MERGE_PATCH
            )
        )
