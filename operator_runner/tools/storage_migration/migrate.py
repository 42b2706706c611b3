"""Migrate a CRD: rewrite all of its objects, then set its status.storedVersions."""

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
from operator_runner.tools.storage_migration.objects import (
    ObjectPage,
    RewriteResult,
    StoredObjects,
    with_retries,
)
from operator_runner.tools.storage_migration.target import (
    ANNOTATION,
    Checkpoint,
    MigrationTarget,
    read_checkpoint,
)

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_CONCURRENCY = 8
"""Concurrent writes: enough to hide the latency of a conversion webhook."""
_MAX_ATTEMPTS = 5


class MigrationResult(Enum):
    """Result of the migration of a CRD; after the last two, run the command again."""

    DONE = "done"
    INCOMPLETE = "incomplete"
    INTERRUPTED = "interrupted"


@dataclass(slots=True)
class MigrationTally:
    """Counts of objects. `before` were rewritten by an interrupted migration."""

    before: int = 0
    results: Counter[RewriteResult] = field(default_factory=Counter)
    failed: int = 0

    @property
    def seen(self) -> int:
        """Objects processed by this migration and by an interrupted one."""
        return self.before + self.results.total() + self.failed


class ProgressReporter(Protocol):
    """Callbacks for the progress of a migration."""

    def started(self, target: MigrationTarget, checkpoint: Checkpoint | None) -> None:
        """Handle the start; `checkpoint` is that of an interrupted migration."""

    def already_migrated(self, target: MigrationTarget) -> None:
        """Handle a CRD whose objects are all stored in the storage version."""

    def progressed(self, tally: MigrationTally, total: int) -> None:
        """Handle a processed object; `total` is an estimate of all objects."""

    def failed(self, target: MigrationTarget, metadata: Json, reason: str) -> None:
        """Handle an object that was not rewritten."""

    def finished(
        self, target: MigrationTarget, tally: MigrationTally, end: MigrationResult
    ) -> None:
        """Handle the end."""


class Migration:
    """Migrates the CRDs of one cluster, one at a time."""

    def __init__(
        self,
        api: Api,
        report: ProgressReporter,
        stopped: Callable[[], bool],
        *,
        dry_run: bool = False,
    ) -> None:
        """Stop when `stopped` returns True between objects; write nothing with `dry_run`."""
        self._api = api
        self._report = report
        self._stopped = stopped
        self._dry_run = dry_run

    async def run(self, name: str) -> MigrationResult:
        """Migrate the CRD `name`, or resume an interrupted migration of it.

        Raises ConfigError if the CRD does not exist or is edited meanwhile, and ApiError if the API
        server rejects a request or remains unavailable; the checkpoint is kept then.
        """
        crd = await self._crd(name)
        target = MigrationTarget.of(crd)
        if target.is_done:
            self._report.already_migrated(target)
            return MigrationResult.DONE
        checkpoint = None if self._dry_run else read_checkpoint(crd, target)
        self._report.started(target, checkpoint)
        tally = MigrationTally(before=checkpoint.seen if checkpoint else 0)
        end = await self._all(target, checkpoint.continue_token if checkpoint else "", tally)
        if end is MigrationResult.DONE and not self._dry_run:
            await self._finish(target)
        self._report.finished(target, tally, end)
        return end

    async def _all(
        self, target: MigrationTarget, continue_token: str, tally: MigrationTally
    ) -> MigrationResult:
        objects = StoredObjects(self._api, target, dry_run=self._dry_run)
        while True:
            page = await objects.page(continue_token)
            total = tally.seen + len(page.items) + page.left
            await self._rewrite(objects, page, target, tally, total)
            if self._stopped():
                return MigrationResult.INTERRUPTED
            continue_token = page.continue_token
            if not continue_token:
                return MigrationResult.INCOMPLETE if tally.failed else MigrationResult.DONE
            # The next run retries failures, so the checkpoint remains before their page.
            if not tally.failed and not self._dry_run:
                await self._save_checkpoint(target, continue_token, tally.seen)

    async def _rewrite(
        self,
        objects: StoredObjects,
        page: ObjectPage,
        target: MigrationTarget,
        tally: MigrationTally,
        total: int,
    ) -> None:
        """Rewrite the objects of a page concurrently. Raises ApiError without a response."""
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
                self._report.progressed(tally, total)

        workers = [asyncio.create_task(work()) for _ in range(_CONCURRENCY)]
        try:
            await asyncio.gather(*workers)
        finally:
            await end_tasks(workers)

    async def _crd(self, name: str) -> Json:
        try:
            return await with_retries(lambda: self._api.request("GET", f"{_CRDS}/{name}"))
        except NotFound as error:
            raise ConfigError(
                f"{name}: CRD not found; write PLURAL.GROUP, as listed by `kubectl get crd`"
            ) from error

    async def _save_checkpoint(
        self, target: MigrationTarget, continue_token: str, seen: int
    ) -> None:
        checkpoint = Checkpoint(target.uid, target.generation, continue_token, seen)
        await self._patch(
            target.name, {"metadata": {"annotations": {ANNOTATION: checkpoint.text()}}}
        )

    async def _finish(self, target: MigrationTarget) -> None:
        """Set status.storedVersions to the storage version. Raises ConfigError after an edit."""
        await self._patch(target.name, {"metadata": {"annotations": {ANNOTATION: None}}})
        for _ in range(_MAX_ATTEMPTS):
            crd = await self._crd(target.name)
            now = MigrationTarget.of(crd)
            if (now.uid, now.generation) != (target.uid, target.generation):
                raise ConfigError(
                    f"{target.name}: the CRD was edited meanwhile, so status.storedVersions is "
                    "unchanged; run the command again"
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
            f"{target.name}: status.storedVersions could not be written because of conflicts; find "
            "the other writer with `kubectl get crd --show-managed-fields --output=yaml`"
        )

    async def _patch(self, name: str, patch: Json) -> Json:
        return await with_retries(
            lambda: self._api.request(
                "PATCH", f"{_CRDS}/{name}", body=patch, content_type=MERGE_PATCH
            )
        )
